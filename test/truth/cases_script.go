package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const pythonProgram = "python3 script"

// script makes system calls of many kinds, in known ways. DNS queries go to a server in the script.
const script = `
import array, ctypes, os, signal, socket, subprocess, threading, time

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = [ctypes.c_void_p]
signal.signal(signal.SIGUSR1, lambda *_: None)
for _ in range(10):
    os.kill(os.getpid(), 0)
    os.kill(os.getpid(), signal.SIGUSR1)
    try:
        os.kill(0x3fffff, signal.SIGTERM)
    except ProcessLookupError:
        pass
for i in range(10):
    time.sleep(0.001 * i)
    os.setuid(0); os.setgid(0); os.setresuid(0, 0, 0); os.setregid(0, 0)
f = os.open("file", os.O_CREAT | os.O_RDWR)
for _ in range(5):
    os.write(f, b"x" * 100)
    os.fsync(f); os.fdatasync(f)
for i in range(20):
    name = "short-%d" % i
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    os.stat(name)
    if i % 2:
        os.rename(name, name + "-new")
        name += "-new"
    os.unlink(name)
for family in (socket.AF_INET, socket.AF_INET6):
    for i in range(5):
        s = socket.socket(family, socket.SOCK_STREAM)
        s.bind(("", 0)); s.listen(10 + i); s.close()
for i in range(4):
    shm = libc.shmget(0, 4096 * (i + 1), 0o1600)
    at = libc.shmat(shm, None, 0)
    libc.shmdt(at)
    libc.shmctl(shm, 0, None)
for i in range(10):
    t = threading.Thread(target=lambda: None)
    t.start(); t.join()
for _ in range(3):
    subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt && umount /mnt; exit 3"])
a, b = socket.socketpair()
for i in range(10):
    a.send(b"y" * (100 + i)); b.recv(4096)
for i in range(5):
    socket.send_fds(a, [b"z"], [f, 0][:1 + i % 2])
    _, fds, _, _ = socket.recv_fds(b, 10, 4)
    for fd in fds:
        os.close(fd)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 5353))
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect(server.getsockname())
for i in range(10):
    query = bytes([0, i, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + b"\x04host\x07example\x00\x00\x01\x00\x01"
    client.send(query)
    data, peer = server.recvfrom(512)
    server.sendto(data[:2] + b"\x81\x83" + data[4:], peer)
    client.recv(512)
`

// scripted is a tool whose rows correspond to system calls of the script.
type scripted struct {
	tool string
	args []string
	// calls are the names of the system calls. Rows with a column "syscall" are compared by name.
	calls []string
	// keep, if set, selects the calls that have a row, and rows the rows.
	keep func(call) bool
	rows func(row) bool
	what string
}

// succeeded selects the calls that did not fail.
func succeeded(c call) bool { return c.ret >= 0 && !c.noReturn }

func scriptTools() []scripted {
	stats := []string{"stat", "lstat", "newfstatat", "statx", "statfs", "fstatfs"}
	mounts := []string{"mount", "umount2", "fsopen", "fsconfig", "fsmount", "fspick", "move_mount", "open_tree", "mount_setattr"}
	ids := []string{"setuid", "setgid", "setresuid", "setresgid", "setreuid", "setregid", "setfsuid", "setfsgid"}
	return []scripted{
		{tool: "statsnoop", calls: stats, what: "calls"},
		{tool: "syncsnoop", calls: []string{"fsync", "fdatasync", "sync", "syncfs", "msync"}, what: "calls"},
		{tool: "killsnoop", calls: []string{"kill", "tkill", "tgkill"}, what: "calls"},
		{tool: "setuids", calls: ids, what: "calls"},
		{tool: "naptime", calls: []string{"nanosleep", "clock_nanosleep"}, what: "sleeps"},
		{tool: "shmsnoop", calls: []string{"shmget", "shmat", "shmdt", "shmctl"}, what: "calls"},
		{tool: "mountsnoop", calls: mounts, what: "calls"},
		{tool: "filegone", calls: []string{"unlink", "unlinkat", "rename", "renameat", "renameat2", "rmdir"}, keep: succeeded, what: "deletions and renames"},
		{tool: "bindsnoop", args: []string{"-x"}, calls: []string{"bind"}, keep: isInternet, what: "binds of IPv4 and IPv6"},
		{tool: "solisten", calls: []string{"listen"}, what: "calls of listen"},
		{
			tool: "threadsnoop", calls: []string{"clone", "clone3"}, what: "threads",
			keep: func(c call) bool { return strings.Contains(c.args, "CLONE_THREAD") && c.ret > 0 },
		},
		{
			tool: "exitsnoop", calls: []string{"exit_group"}, what: "exits of processes",
			keep: func(c call) bool { return c.noReturn },
		},
		{
			tool: "filelife", calls: []string{"openat"}, what: "short-lived files",
			keep: func(c call) bool { return strings.Contains(c.args, `"short-`) && c.ret >= 0 },
			rows: func(r row) bool { return strings.HasPrefix(r.str("file"), "short-") },
		},
		{
			tool: "dnssnoop", args: []string{"--port", "5353"}, calls: []string{"sendto"}, what: "queries",
			keep: func(c call) bool { return strings.Contains(c.args, `\1\0\0\1\0\0\0\0\0\0\4host`) },
		},
	}
}

func isInternet(c call) bool { return strings.Contains(c.args, "AF_INET") }

func scriptCases() []comparison {
	needs := []string{"strace", "python3", "unshare"}
	var all []comparison
	for _, s := range scriptTools() {
		all = append(all, comparison{s.tool, pythonProgram, "strace -f", needs, s.run})
	}
	return append(all,
		comparison{"undump", pythonProgram, "strace -f", needs, undump},
		comparison{"sofdsnoop", pythonProgram, "strace -f", needs, sofdsnoop},
	)
}

// scripted runs the script under a tool and strace.
func (m *machine) scripted(ctx context.Context, calls []string, args ...string) (*observed, []call, error) {
	python, err := output(ctx, "python3", "-c", "import sys; print(sys.executable)")
	if err != nil {
		return nil, nil, err
	}
	log := m.path(args[0] + ".strace")
	h, err := hold(ctx, straceArgs(log, calls...), strings.TrimSpace(python), "-c", "import os; os.chdir("+fmt.Sprintf("%q", m.scratch)+")\n"+script)
	if err != nil {
		return nil, nil, err
	}
	defer h.close()
	out, err := m.observe(ctx, h.finish, append(args, "--cgroup", h.cgroup)...)
	if err != nil {
		return nil, nil, err
	}
	all, err := readStrace(log, h.pid)
	return out, all, err
}

func (s scripted) run(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, err := m.scripted(ctx, s.calls, append([]string{s.tool}, s.args...)...)
	if err != nil {
		return nil, err
	}
	names := map[string]float64{}
	rows, want := 0.0, 0.0
	for _, r := range out.rows {
		if s.rows == nil || s.rows(r) {
			names[strings.ToLower(r.str("syscall"))]++
			rows++
		}
	}
	_, byName := names[""]
	for _, c := range calls {
		if slices.Contains(s.calls, c.name) && (s.keep == nil || s.keep(c)) {
			names[c.name]--
			want++
		}
	}
	figures := []figure{{s.what, rows + out.lost(), want, 0, ""}}
	if byName {
		return figures, nil
	}
	differ := 0.0
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] != 0 {
			figures = append(figures, figure{name + ": difference", names[name], 0, 0, ""})
			differ++
		}
	}
	return append(figures, figure{fmt.Sprintf("system calls, out of %d, whose counts differ", len(names)), differ, 0, 0, ""}), nil
}

// undump compares what the script receives from its socket pair.
func undump(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, err := m.scripted(ctx, []string{"recvfrom", "socketpair"}, "undump")
	if err != nil {
		return nil, err
	}
	ofPair := func(c call) bool { return c.name == "recvfrom" && strings.Contains(c.args, `"yyyy`) }
	long := &observed{}
	for _, r := range out.rows {
		if r.num("bytes") >= 100 && strings.HasPrefix(r.str("data"), "yyyy") {
			long.rows = append(long.rows, r)
		}
	}
	return []figure{
		{"messages of the script's socket pair", float64(len(long.rows)) + out.lost(), count(calls, ofPair), 0, ""},
		{"bytes of these", long.sum("bytes"), bytesOf(calls, ofPair), 0, ""},
	}, nil
}

// sofdsnoop compares the passed descriptors with those in the control messages.
func sofdsnoop(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, err := m.scripted(ctx, []string{"sendmsg", "recvmsg"}, "sofdsnoop")
	if err != nil {
		return nil, err
	}
	passed := func(name string) (n float64) {
		for _, c := range calls {
			if _, data, ok := strings.Cut(c.args, "cmsg_data=["); ok && c.name == name && strings.Contains(c.args, "SCM_RIGHTS") {
				list, _, _ := strings.Cut(data, "]")
				n += float64(strings.Count(list, ",") + 1)
			}
		}
		return n
	}
	return []figure{
		{"descriptors sent", float64(len(out.where("action", "SEND").rows)) + out.lost(), passed("sendmsg"), 0, ""},
		{"descriptors received", float64(len(out.where("action", "RECV").rows)), passed("recvmsg"), 0, ""},
	}, nil
}
