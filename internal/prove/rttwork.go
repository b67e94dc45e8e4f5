package prove

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// estimates is the range of the round-trip times that the kernel estimates for both ends of a connection, in us.
type estimates struct{ least, most uint32 }

// read adds the current estimates, and returns that of the first end, and how many segments are not acknowledged.
func (e *estimates) read(ends ...int) (first, unacked uint32) {
	for i, fd := range ends {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.Rtt == 0 {
			continue
		}
		if e.most == 0 || info.Rtt < e.least {
			e.least = info.Rtt
		}
		e.most = max(e.most, info.Rtt)
		unacked += info.Unacked
		if i == 0 {
			first = info.Rtt
		}
	}
	return first, unacked
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
	sum := int64(0)
	for range w.n {
		for _, ends := range [][2]int{{client, server}, {server, client}} {
			estimate, _ := all.read(ends[1], ends[0])
			sum += int64(estimate)
			if err := sendByte(ends[0], ends[1]); err != nil {
				return err
			}
		}
	}
	if err := awaitAcks(client, server); err != nil {
		return err
	}
	after := w.namespaceCounters()
	count := after[segmentsIn] - before[segmentsIn] - after[coalesced] + before[coalesced]
	pure := count - 2*int64(w.n)
	if pure < 0 {
		return fmt.Errorf("the kernel counted %d segments for %d bytes", count, 2*w.n)
	}
	// An acknowledgement without data can change an estimate after it was read.
	const unread = 2
	w.sum(row{
		"count": count, "bucket_count": count, "buckets": consistent,
		"min": atLeast(float64(all.least) / unread), "max": atMost(int64(all.most) * unread),
		"sum": between(sum/unread, sum*unread+unread*unread*pure*int64(all.most)),
	})
	w.total("count", count, "/proc/net/snmp ("+segmentsIn+" - "+coalesced+")")
	return nil
}

func sendByte(from, to int) error {
	b := []byte{0}
	_, errWrite := unix.Write(from, b)
	_, errRead := unix.Read(to, b)
	if err := errors.Join(errWrite, errRead); err != nil {
		return fmt.Errorf("send a byte: %w", err)
	}
	return nil
}

// awaitAcks waits until all segments are acknowledged. The last acknowledgement can be delayed: no segment has the
// estimate after it.
func awaitAcks(ends ...int) error {
	var e estimates
	for end := time.Now().Add(slowest); ; time.Sleep(time.Millisecond) {
		_, unacked := e.read(ends...)
		if unacked == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("a segment was not acknowledged within %v", slowest)
		}
	}
}
