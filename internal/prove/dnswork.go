package prove

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

const dnsPort = 53

// resolves sends queries to a server of its own, and answers them; every second name does not exist.
func resolves(w *worker) error {
	server, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(server)
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(client)
	if err := unix.Bind(server, address(serverHost, dnsPort)); err != nil {
		return fmt.Errorf("bind the server: %w", err)
	}
	if err := unix.Bind(client, address(clientHost, 0)); err != nil {
		return fmt.Errorf("bind the client: %w", err)
	}
	if err := unix.Connect(client, address(serverHost, dnsPort)); err != nil {
		return err
	}
	for i := range w.n {
		if err := w.resolve(server, client, i); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) resolve(server, client, i int) error {
	host := fmt.Sprintf("host%d", i)
	query, id := question(i, host), 1000+i
	buffer := make([]byte, 512)
	sent := during(func() { _, _ = unix.Write(client, query) })
	n, from, err := unix.Recvfrom(server, buffer, 0)
	if err != nil {
		return err
	}
	exists := i%2 == 0
	if err := unix.Sendto(server, answer(buffer[:n], exists, byte(i)), 0, from); err != nil {
		return err
	}
	received := during(func() { _, err = unix.Read(client, buffer) })
	r := row{
		"time": received, "id": id, "name": host + ".test", "qtype": "A", "rcode": "NXDOMAIN", "protocol": "udp", "truncated": false,
		"laddr": clientHost, "raddr": serverHost, "lport": portOf(client), "rport": dnsPort, "netns": w.namespace(),
		"latency_ns": between(received.begin-sent.end, received.end-sent.begin),
	}
	if exists {
		r["rcode"], r["answers"] = "NOERROR", []string{fmt.Sprintf("192.0.2.%d", byte(i))}
	}
	w.want(r)
	return err
}

// question returns a query for the address of host.test.
func question(i int, host string) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(1000+i))
	b = append(b, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0) // recursion desired, one question
	b = append(append(b, byte(len(host))), host...)
	return append(append(append(b, 4), "test"...), 0, 0, 1, 0, 1) // type A, class IN
}

// answer returns the answer to a query: the address 192.0.2.last, or that the name does not exist.
func answer(query []byte, exists bool, last byte) []byte {
	const noName = 3
	b := append([]byte(nil), query...)
	b[2] |= 0x80
	if !exists {
		b[3] = noName
		return b
	}
	b[7] = 1 // one answer
	return append(b, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, last)
}
