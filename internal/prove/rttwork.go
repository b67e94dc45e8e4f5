package prove

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// estimates is the range of the round-trip times that the kernel estimates for both ends of a connection, in us.
type estimates struct{ least, most uint32 }

// read adds the current estimates, and returns how many segments are not acknowledged.
func (e *estimates) read(ends ...int) (unacked uint32) {
	for _, fd := range ends {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.Rtt == 0 {
			continue
		}
		if e.most == 0 || info.Rtt < e.least {
			e.least = info.Rtt
		}
		e.most = max(e.most, info.Rtt)
		unacked += info.Unacked
	}
	return unacked
}

// pair returns both ends of a connection of the process to itself, which exist until it ends.
func (w *worker) pair() (client, server int, err error) {
	l, port, err := tcpSocket(serverHost, queue)
	if err != nil {
		return -1, -1, err
	}
	defer unix.Close(l)
	if client, _, err = tcpSocket(clientHost, 0); err != nil {
		return -1, -1, err
	}
	if err := unix.Connect(client, address(serverHost, port)); err != nil {
		return -1, -1, fmt.Errorf("connect: %w", err)
	}
	if server, _, err = unix.Accept(l); err != nil {
		return -1, -1, fmt.Errorf("accept: %w", err)
	}
	return client, server, nil
}

// segmentsIn is the counter of the segments that the network namespace receives, coalesced that of those that were
// appended to another one while the socket was in use.
const (
	segmentsIn = "Tcp.InSegs"
	coalesced  = "TcpExt.TCPBacklogCoalesce"
)

// roundTrips sends a byte to and fro. The tool has a value for each segment of the established connection: the
// estimate before the segment, which is in TCP_INFO after the one before it.
func roundTrips(w *worker) error {
	client, server, err := w.pair()
	if err != nil {
		return err
	}
	before := w.namespaceCounters()
	var all estimates
	b := []byte{0}
	for range w.n {
		all.read(client, server)
		for _, ends := range [][2]int{{client, server}, {server, client}} {
			_, errWrite := unix.Write(ends[0], b)
			_, errRead := unix.Read(ends[1], b)
			if err := errors.Join(errWrite, errRead); err != nil {
				return fmt.Errorf("send a byte: %w", err)
			}
			all.read(client, server)
		}
	}
	// The last acknowledgement can be delayed.
	for end := time.Now().Add(slowest); all.read(client, server) > 0; {
		if time.Now().After(end) {
			return fmt.Errorf("a segment was not acknowledged within %v", slowest)
		}
		time.Sleep(time.Millisecond)
	}
	after := w.namespaceCounters()
	count := after[segmentsIn] - before[segmentsIn] - after[coalesced] + before[coalesced]
	if count < 2*int64(w.n) {
		return fmt.Errorf("the kernel counted %d segments for %d bytes", count, 2*w.n)
	}
	// Two segments can follow each other before their estimates are read.
	const unread = 2.0
	least, most := float64(all.least)/unread, float64(all.most)*unread
	w.sum(row{
		"count": count, "bucket_count": count, "buckets": consistent, "min": between(least, most), "max": between(least, most),
		"sum": between(float64(count)*least, float64(count)*most),
	})
	w.total("count", count, "/proc/net/snmp ("+segmentsIn+" - "+coalesced+")")
	return nil
}
