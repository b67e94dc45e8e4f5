package prove

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

func networkProofs() []proof {
	const connections = "connect to itself, send 100 bytes and more, receive 50 bytes, close"
	return []proof{
		{tool: "tcplife", job: "tcp lives", n: many / 2, does: connections, args: "--pid {pid}"},
		{tool: "tcpconnect", job: "tcp connects", n: many, does: connections, args: "--tid {tid}"},
		{tool: "tcpaccept", job: "tcp accepts", n: many, does: connections, args: "--tid {tid}"},
		{tool: "tcpstates", job: "tcp states", n: many / 10, does: connections, own: "netns direction", alone: true},
		{tool: "tcptop", job: "tcp bytes", n: many / 2, does: connections, args: "--pid {pid}", by: "lport rport pid uid comm laddr raddr netns cgroup_id", columns: "pid uid comm laddr raddr lport rport netns cgroup_id tx_bytes rx_bytes"},
		{tool: "tcptracer", job: "tcp traces", n: many / 2, does: connections, args: "--pid {pid}", pairs: "kind connect,accept close lport rport"},
		{tool: "tcpsubnet", job: "tcp subnets", n: many / 2, does: connections, args: "--pid {pid} 127.0.0.0/8,10.0.0.0/8", by: "subnet", own: "subnet"},
		{tool: "tcppktlat", job: "tcp reads", n: many / 2, does: connections, args: "--pid {pid}"},
		{tool: "tcprtt", job: "round trips", n: many / 2, does: "send a byte to itself, and one back", args: "--netns-id {netns}", by: "total", async: true, alone: true},
		{tool: "tcpdrop", job: "refuse", n: many, does: "connect to a port of its own without a listener", args: "--netns-id {netns} -S"},
		{tool: "bindsnoop", job: "bind", n: many, does: "bind a socket, and another one to the same port", args: "--pid {pid} -x"},
		{tool: "solisten", job: "listen", n: many, does: "listen with a queue for 17", args: "--pid {pid}"},
		{tool: "dnssnoop", job: "dns", n: many, does: "ask a server of its own for a name", args: "--pid {pid} --columns +answers"},
	}
}

func networkJobs() map[string]job {
	return map[string]job{
		"tcp lives":    {prepare: ownNetwork, run: connects(lives, nil), second: snmp("rows", 1, "Tcp.ActiveOpens", "Tcp.PassiveOpens")},
		"tcp connects": {prepare: ownNetwork, run: connects(connectRows, nil), second: snmp("rows", 1, "Tcp.ActiveOpens")},
		"tcp accepts":  {prepare: ownNetwork, run: connects(acceptRows, nil), second: snmp("rows", 1, "Tcp.PassiveOpens")},
		"tcp states":   {prepare: ownNetwork, run: connects(stateRows, nil)},
		"tcp bytes":    {prepare: ownNetwork, run: connects(byteRows, sumBytes)},
		"tcp traces":   {prepare: ownNetwork, run: connects(traceRows, nil)},
		"tcp subnets":  {prepare: ownNetwork, run: connects(noRows, sumSubnet)},
		"tcp reads":    {prepare: ownNetwork, run: connects(readRows, nil)},
		"round trips":  {prepare: ownNetwork, run: roundTrips},
		"refuse":       {prepare: ownNetwork, run: refuses, second: snmp("rows", 1, "Tcp.AttemptFails")},
		"bind":         {prepare: ownNetwork, run: binds},
		"listen":       {prepare: ownNetwork, run: listens},
		"dns":          {prepare: ownNetwork, run: resolves, second: snmp("rows", 2, "Udp.InDatagrams")},
	}
}

// ownNetwork moves the thread to a network namespace of its own, which has only a loopback device.
func ownNetwork(w *worker) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("create network namespace: %w", err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("create socket: %w", err)
	}
	defer unix.Close(s)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("name the loopback device: %w", err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("start the loopback device: %w", err)
	}
	return w.netns()
}

// The addresses of clients and servers differ, so that a tool that confuses them is wrong.
const (
	clientHost = "127.0.0.1"
	serverHost = "127.0.0.2"
)

func address(host string, port int) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(host).As4()}
}

func portOf(fd int) int {
	local, err := unix.Getsockname(fd)
	if in4, ok := local.(*unix.SockaddrInet4); ok && err == nil {
		return in4.Port
	}
	return 0
}

// tcpSocket returns a socket that is bound to a free port of its own.
func tcpSocket(host string, backlog int) (fd, port int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, fmt.Errorf("create socket: %w", err)
	}
	if err := unix.Bind(fd, address(host, 0)); err != nil {
		return -1, 0, fmt.Errorf("bind: %w", err)
	}
	if backlog > 0 {
		err = unix.Listen(fd, backlog)
	}
	return fd, portOf(fd), err
}

// connection is what happened on a connection, and when.
type connection struct {
	client, server       int // ports
	sent, received       int // bytes, of the client
	connect              span
	accept, send         span
	read, answer, close1 span
	close2               span
	bytesSent            uint64
}

// ends returns the columns of both ends.
func (c *connection) ends(w *worker, add row) (active, passive row) {
	end := func(local, remote string, l, r int) row {
		out := row{"laddr": local, "raddr": remote, "lport": l, "rport": r, "netns": w.namespace(), "family": 4}
		for k, v := range add {
			out[k] = v
		}
		return out
	}
	return end(clientHost, serverHost, c.client, c.server), end(serverHost, clientHost, c.server, c.client)
}

const (
	requestSize = 100
	answerSize  = 50
	queue       = 16
	firstPort   = 20_000 // each connection has a port of its own
)

// exchange is the sum of all connections.
type exchange struct {
	tcpInfo uint64
	server  int // port
}

func noRows(*worker, *connection) {}

// connects returns a job that makes connections one after the other. each is called for every connection, and
// sum at the end.
func connects(each func(w *worker, c *connection), sum func(w *worker, all exchange)) func(*worker) error {
	return func(w *worker) error {
		l, server, err := tcpSocket(serverHost, queue)
		if err != nil {
			return err
		}
		defer unix.Close(l)
		all := exchange{server: server}
		for i := range w.n {
			c := connection{client: firstPort + i, server: server, sent: requestSize + i%10, received: answerSize}
			if err := c.perform(l); err != nil {
				return err
			}
			each(w, &c)
			all.tcpInfo += c.bytesSent
		}
		if sum != nil {
			sum(w, all)
		}
		return nil
	}
}

// perform connects, exchanges the data and closes the connection, the client first.
func (c *connection) perform(l int) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("create socket: %w", err)
	}
	if err := unix.Bind(s, address(clientHost, c.client)); err != nil {
		return fmt.Errorf("bind to port %d: %w", c.client, err)
	}
	var a int
	buffer := make([]byte, requestSize+answerSize)
	var errs [7]error
	c.connect = during(func() { errs[0] = unix.Connect(s, address(serverHost, c.server)) })
	c.accept = during(func() { a, _, errs[1] = unix.Accept(l) })
	// The close waits for the end of the connection: another task can process the packets.
	_ = unix.SetsockoptLinger(a, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 10})
	c.send = during(func() { _, errs[2] = unix.Write(s, buffer[:c.sent]) })
	c.read = during(func() { _, errs[3] = unix.Read(a, buffer) })
	c.answer = during(func() {
		_, errs[4] = unix.Write(a, buffer[:c.received])
		_, errs[5] = unix.Read(s, buffer)
	})
	for _, fd := range []int{s, a} {
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			c.bytesSent += info.Bytes_sent
		}
	}
	c.close1 = during(func() {
		unix.Close(s)
		_, errs[6] = unix.Read(a, buffer)                                 // waits for the FIN
		_ = unix.SetsockoptInt(a, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) // and answers it
	})
	c.close2 = during(func() { unix.Close(a) })
	return errors.Join(errs[:]...)
}

// ending is the time in which the client's end closes.
func (c *connection) ending() span { return span{c.close1.begin, c.close2.end} }

func (w *worker) namespace() any {
	id, _ := inodeOf("/proc/thread-self/ns/net")
	return id
}

// lives notes the whole connection of both ends.
func lives(w *worker, c *connection) {
	// A closed client that waits for the FIN of the server can already be in TCP_CLOSE, without a task.
	least, most := c.close1.begin-c.accept.end, c.close2.end-c.connect.begin
	active, passive := c.ends(w, row{
		"duration_ns": between(least, most), "established_ns": between(least, most), "retransmits": 0, "state": "closed", "partial": false,
	})
	active["tx_bytes"], active["rx_bytes"], active["direction"], active["tcp_state"] = c.sent, c.received, "active", "FIN_WAIT2"
	passive["tx_bytes"], passive["rx_bytes"], passive["direction"], passive["tcp_state"] = c.received, c.sent, "passive", "LAST_ACK"
	active["time"], passive["time"] = c.ending(), c.close2
	w.want(active)
	w.want(passive)
}

func connectRows(w *worker, c *connection) {
	active, _ := c.ends(w, row{"time": c.connect, "duration_ns": atMost(c.connect.ns()), "result": "connected"})
	w.want(active)
}

func acceptRows(w *worker, c *connection) {
	_, passive := c.ends(w, row{"time": c.accept, "backlog": 0, "backlog_max": queue})
	w.want(passive)
}

// stateRows notes the states of RFC 9293 that both ends enter, the client closing first.
func stateRows(w *worker, c *connection) {
	// The kernel prepares the end that accepts before a task owns it.
	noTask := row{"pid": 0, "tid": 0, "comm": "", "cgroup_id": 0, "uid": uint32(0xffffffff)}
	handshake := span{c.connect.begin, c.accept.end}
	established := between(c.close1.begin-handshake.end, c.close1.end-c.connect.begin)
	w.change(c.client, c.server, "active", nil, "CLOSE", "SYN_SENT", nil, c.connect)
	// Older kernels set the remote end later.
	copied := row{"raddr": row{"any": []any{clientHost, "0.0.0.0"}}, "rport": row{"any": []any{c.client, 0}}}.with(noTask)
	w.change(c.server, c.client, "passive", copied, "LISTEN", "SYN_RECV", nil, handshake)
	w.change(c.server, c.client, "passive", noTask, "SYN_RECV", "ESTABLISHED", atMost(handshake.ns()), handshake)
	w.change(c.client, c.server, "active", nil, "SYN_SENT", "ESTABLISHED", atMost(c.connect.ns()), c.connect)
	w.change(c.client, c.server, "active", nil, "ESTABLISHED", "FIN_WAIT1", established, c.close1)
	w.change(c.server, c.client, "passive", nil, "ESTABLISHED", "CLOSE_WAIT", established, c.close1)
	w.change(c.client, c.server, "active", nil, "FIN_WAIT1", "FIN_WAIT2", atMost(c.ending().ns()), c.ending())
	w.change(c.server, c.client, "passive", nil, "CLOSE_WAIT", "LAST_ACK", between(c.close2.begin-c.close1.end, c.close2.end-c.close1.begin), c.close2)
	w.change(c.client, c.server, "active", nil, "FIN_WAIT2", "CLOSE", between(0, c.ending().ns()), c.ending())
	w.change(c.server, c.client, "passive", nil, "LAST_ACK", "CLOSE", atMost(c.close2.ns()), c.close2)
}

// change notes the change of the state of one end of a connection. add replaces columns.
func (w *worker) change(l, r int, direction string, add row, from, to string, ns row, when span) {
	local, remote := clientHost, serverHost
	if direction == "passive" {
		local, remote = remote, local
	}
	out := row{
		"laddr": local, "raddr": remote, "lport": l, "rport": r, "netns": w.namespace(), "family": 4, "time": when,
		"direction": direction, "oldstate": from, "newstate": to,
	}
	if ns != nil {
		out["duration_ns"] = ns
	}
	for k, v := range add {
		out[k] = v
	}
	w.want(out)
}

func byteRows(w *worker, c *connection) {
	active, passive := c.ends(w, nil)
	delete(active, "family")
	delete(passive, "family")
	active["tx_bytes"], active["rx_bytes"] = c.sent, c.received
	passive["tx_bytes"], passive["rx_bytes"] = c.received, c.sent
	w.want(active)
	w.want(passive)
}

func sumBytes(w *worker, all exchange) {
	w.total("tx_bytes", all.tcpInfo, "TCP_INFO (tcpi_bytes_sent) of both ends")
}

func traceRows(w *worker, c *connection) {
	for i, kind := range []string{"connect", "accept", "close", "close"} {
		ends := [2]row{}
		ends[0], ends[1] = c.ends(w, row{"kind": kind, "time": []span{c.connect, c.accept, c.close1, c.close2}[i]})
		w.want(ends[i%2])
	}
}

func sumSubnet(w *worker, all exchange) {
	w.sum(row{"subnet": "127.0.0.0/8", "tx_bytes": all.tcpInfo})
}

func readRows(w *worker, c *connection) {
	_, passive := c.ends(w, row{"time": c.read, "latency_ns": atMost(c.read.end - c.send.begin), "segments": 1})
	w.want(passive)
	active, _ := c.ends(w, row{"time": c.answer, "latency_ns": atMost(c.answer.ns()), "segments": 1})
	w.want(active)
}

func refuses(w *worker) error {
	closed, port, err := tcpSocket(serverHost, 0)
	if err != nil {
		return err
	}
	defer unix.Close(closed)
	for range w.n {
		s, from, err := tcpSocket(clientHost, 0)
		if err != nil {
			return err
		}
		r := w.timed("", func() { err = unix.Connect(s, address(serverHost, port)) })
		unix.Close(s)
		if err != unix.ECONNREFUSED {
			return fmt.Errorf("connect to a port without a listener: %v", err)
		}
		r["saddr"], r["daddr"], r["sport"], r["dport"], r["netns"] = clientHost, serverHost, from, port, w.namespace()
		r["flags"], r["ack"], r["family"] = []string{"SYN"}, 0, 4
		r["reason"] = row{"any": []any{"NO_SOCKET", nil}} // the kernel has reasons from 5.17 on
		w.sum(r)
	}
	return nil
}

func binds(w *worker) error {
	for range w.n / 2 {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		r := w.timed("", func() { err = unix.Bind(s, address(serverHost, 0)) })
		if err != nil {
			return err
		}
		port := portOf(s)
		w.bound(r, 0, port, nil)
		other, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		r = w.timed("", func() { err = unix.Bind(other, address(serverHost, port)) })
		w.bound(r, port, port, err)
		unix.Close(s)
		unix.Close(other)
	}
	return nil
}

func (w *worker) bound(r row, requested, port int, err error) {
	r["laddr"], r["lport"], r["requested_port"], r["netns"], r["protocol"] = serverHost, port, requested, w.namespace(), "tcp"
	r["ifindex"], r["family"] = 0, 4
	w.want(errorOf(r, 0, err))
}

func listens(w *worker) error {
	const backlog = 17
	for range w.n {
		s, port, err := tcpSocket(serverHost, 0)
		if err != nil {
			return err
		}
		r := w.timed("", func() { err = unix.Listen(s, backlog) })
		r["requested_backlog"], r["backlog_max"], r["family"], r["protocol"] = backlog, backlog, 4, "tcp"
		r["laddr"], r["lport"], r["netns"] = serverHost, port, w.namespace()
		w.want(errorOf(r, 0, err))
		unix.Close(s)
	}
	return nil
}
