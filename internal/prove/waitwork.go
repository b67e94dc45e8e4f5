package prove

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Proofs of tools whose events are waits, losses and messages.
func waitProofs() []proof {
	return []proof{
		{tool: "offwaketime", job: "sleeps", n: 50, does: "sleep for 1 ms", async: true, args: "--tid {tid}", by: "pid tid comm"},
		{tool: "runqslower", job: "long waits", n: 50, does: "sleep for 1 ms", async: true, args: "--tid {tid} 0", by: "pid tid comm uid cgroup_id"},
		{tool: "futexctn", job: "locks", n: known, does: "wait 1 ms for a lock that nobody releases", args: "--tid {tid} --outcomes", by: "pid tid comm lock outcome", own: "lock outcome"},
		{tool: "tcpretrans", job: "losses", n: 4, does: "send 1000 bytes that are dropped twice at least", async: true, own: "netns", alone: true},
		{tool: "tcpsynbl", job: "queues", n: many / 2, does: "connect to itself, and accept", args: "--netns-id {netns} --ports", by: "backlog_max lport"},
		{tool: "fsnotifysnoop", job: "watch", n: many / 2, does: "create a file in a directory that it watches", args: "--pid {pid}"},
		{tool: "ttysnoop", job: "terminal", n: many / 2, does: "write 20 bytes to a pseudo terminal", args: "--tid {tid}"},
		{tool: "dcsnoop", job: "names", n: many, does: "open a file that does not exist", args: "--tid {tid}", own: "file"},
		{tool: "biostacks", job: "request stacks", n: 200, does: "read 4096 bytes of a file from the disk (O_DIRECT)", async: true, args: "--pid {pid}", by: "pid comm disk"},
	}
}

func waitJobs() map[string]job {
	return map[string]job{
		"long waits":     {run: sleeping(waited)},
		"locks":          {run: locks},
		"losses":         {prepare: ownNetwork, run: losesSegments, second: snmp("segments", 1, "Tcp.RetransSegs")},
		"queues":         {prepare: ownNetwork, run: connects(noRows, queueLengths), second: snmp("count", 1, "Tcp.PassiveOpens")},
		"watch":          {prepare: prepareWatch, run: watches},
		"terminal":       {prepare: prepareTerminal, run: writesToTerminal},
		"names":          {run: missingNames},
		"request stacks": {prepare: prepareBlocks, run: directReads(nil, requestStacks), second: diskStats("count")},
	}
}

// waited notes the waits for a CPU as rows of single waits, see queued.
func waited(w *worker, slept int64, used usage) {
	queued(w, slept, used)
	r := w.log.Rows[0]
	sum := r["sum"].(row)
	const us = 1000
	r[rowsSummed], r["latency_ns"] = r["count"], between(int64(sum["min"].(float64)*us), int64(sum["max"].(float64)*us))
	for _, k := range []string{"count", "sum", "max", "buckets"} {
		delete(r, k)
	}
	for _, k := range []string{"pid", "tid", "comm", "uid", "cgroup_id"} {
		r[k] = w.common[k]
	}
}

// locks waits for a futex until the time limit.
func locks(w *worker) error {
	memory, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map memory: %w", err)
	}
	word := uintptr(unsafe.Pointer(&memory[0]))
	const private = 128
	var all durations
	for all.n < int64(w.n) {
		limit := unix.Timespec{Nsec: nap}
		var errno unix.Errno
		s := during(func() {
			_, _, errno = unix.Syscall6(unix.SYS_FUTEX, word, private, 0, uintptr(unsafe.Pointer(&limit)), 0, 0)
		})
		switch errno {
		case unix.ETIMEDOUT:
			all.add(s)
		case unix.EINTR:
		default:
			return fmt.Errorf("wait for a lock: %w", errno)
		}
	}
	const us = 1000
	w.sum(row{
		"pid": w.common["pid"], "tid": w.common["tid"], "comm": w.common["comm"], "lock": fmt.Sprintf("%#x", word), "outcome": "timeout",
		"count": all.n, "bucket_count": all.n, "buckets": consistent, "sum": between(all.n*nap/2/us, all.sum/us+1), "max": between(nap/us, all.most/us+1),
	})
	return nil
}

// losesSegments sends data to sockets that drop it for some time, over several connections at once.
func losesSegments(w *worker) error {
	const size, losses = 1000, 2
	l, server, err := tcpSocket(serverHost, queue)
	if err != nil {
		return err
	}
	defer unix.Close(l)
	pairs := make([][2]int, w.n)
	for i := range pairs {
		if pairs[i], err = losing(l, firstPort+i, server, size); err != nil {
			return err
		}
	}
	for i, p := range pairs {
		for retransmitted(p[0]) < losses {
			if err := unix.Nanosleep(&unix.Timespec{Nsec: nap}, nil); err != nil && err != unix.EINTR {
				return err
			}
		}
		if err := unix.SetsockoptInt(p[1], unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != nil {
			return fmt.Errorf("let segments pass: %w", err)
		}
		buffer := make([]byte, size)
		if _, err := unix.Read(p[1], buffer); err != nil {
			return err
		}
		for unacknowledged(p[0]) > 0 {
			if err := unix.Nanosleep(&unix.Timespec{Nsec: nap}, nil); err != nil && err != unix.EINTR {
				return err
			}
		}
		for range retransmitted(p[0]) {
			w.want(row{
				"laddr": clientHost, "raddr": serverHost, "lport": firstPort + i, "rport": server, "netns": w.namespace(), "family": 4,
				"bytes": size, "segments": 1, "tcp_state": "ESTABLISHED",
			})
		}
		unix.Close(p[0])
		unix.Close(p[1])
	}
	return nil
}

// losing connects, and sends data that the other end drops.
func losing(l, port, server, size int) (pair [2]int, err error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return pair, fmt.Errorf("create socket: %w", err)
	}
	if err := unix.Bind(s, address(clientHost, port)); err != nil {
		return pair, fmt.Errorf("bind to port %d: %w", port, err)
	}
	if err := unix.Connect(s, address(serverHost, server)); err != nil {
		return pair, fmt.Errorf("connect: %w", err)
	}
	a, _, err := unix.Accept(l)
	if err != nil {
		return pair, fmt.Errorf("accept: %w", err)
	}
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	if err := unix.SetsockoptSockFprog(a, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]}); err != nil {
		return pair, fmt.Errorf("drop segments: %w", err)
	}
	_, err = unix.Write(s, make([]byte, size))
	return [2]int{s, a}, err
}

func retransmitted(fd int) int {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	return int(info.Total_retrans)
}

func unacknowledged(fd int) uint32 {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	return info.Unacked
}

// queueLengths notes the length of the listener's queue: each connection is accepted before the next one.
func queueLengths(w *worker, all exchange) {
	w.sum(row{"backlog_max": queue, "lport": all.server, "count": w.n, "bucket_count": w.n, "buckets": consistent, "sum": 0, "min": 0, "max": 0})
}

func prepareWatch(w *worker) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	w.inotify = fd
	w.later(func() { unix.Close(fd) })
	_, err = unix.InotifyAddWatch(fd, w.dir, unix.IN_CREATE)
	return err
}

func watches(w *worker) error {
	buffer := make([]byte, 4096)
	for i := range w.n {
		name := fmt.Sprintf("watched%d", i)
		made := span{begin: now()}
		fd, err := unix.Open(w.path(name), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		made.end = now()
		unix.Close(fd)
		read := during(func() { _, err = unix.Read(w.inotify, buffer) })
		if err != nil {
			return err
		}
		w.want(row{
			"time": read, "api": "inotify", "mask": unix.IN_CREATE, "events": "CREATE", "name": name, "watch": 1,
			"tracee_pid": w.common["pid"], "tracee_tid": w.common["tid"], "tracee_uid": w.common["uid"], "tracee_comm": w.common["comm"],
			"latency_ns": between(read.begin-made.end, read.end-made.begin),
		})
	}
	return nil
}

// prepareTerminal opens both ends of a pseudo terminal that changes nothing.
func prepareTerminal(w *worker) error {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a pseudo terminal: %w", err)
	}
	w.later(func() { unix.Close(master) })
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock the pseudo terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return fmt.Errorf("read the number of the pseudo terminal: %w", err)
	}
	slave, err := unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the pseudo terminal: %w", err)
	}
	w.later(func() { unix.Close(slave) })
	t, err := unix.IoctlGetTermios(slave, unix.TCGETS)
	if err != nil {
		return fmt.Errorf("read the settings of the pseudo terminal: %w", err)
	}
	t.Oflag, t.Lflag = 0, 0
	w.terminal = [2]int{master, slave}
	w.facts["pts"] = fmt.Sprint(n)
	return unix.IoctlSetTermios(slave, unix.TCSETS, t)
}

func writesToTerminal(w *worker) error {
	var st unix.Stat_t
	if err := unix.Fstat(w.terminal[1], &st); err != nil {
		return err
	}
	buffer := make([]byte, 64)
	for i := range w.n {
		text := fmt.Sprintf("terminal line %06d", i)
		var err error
		r := w.timed("", func() { _, err = unix.Write(w.terminal[1], []byte(text)) })
		if err != nil {
			return err
		}
		if n, err := unix.Read(w.terminal[0], buffer); err != nil || !bytes.Equal(buffer[:n], []byte(text)) {
			return fmt.Errorf("the pseudo terminal returned %q: %v", buffer[:max(n, 0)], err)
		}
		w.want(r.with(row{
			"bytes": len(text), "offset": 0, "tty": "pts/" + w.facts["pts"], "device": fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)),
			"syscall": "write", "missing_bytes": 0, "data": text,
		}))
	}
	return nil
}

// missingNames looks up names that no directory has, each once, so that the kernel does not know them yet.
func missingNames(w *worker) error {
	for i := range w.n {
		name := fmt.Sprintf("%s-%d", filepath.Base(w.dir), i)
		r := w.timed("", func() { _, _ = unix.Open(w.path(name), unix.O_RDONLY|unix.O_CLOEXEC, 0) })
		w.want(r.with(row{"lookup": "M", "file": name, "missed": true}))
	}
	return nil
}

func requestStacks(w *worker, all durations) {
	w.histogram(row{"pid": w.common["pid"], "comm": w.common["comm"], "disk": diskOf(w.dir)}, all)
}
