package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func listCases() []comparison {
	return []comparison{
		{"tasks", "the whole machine", "ps -e", []string{"ps"}, tasks},
		{"files", "git log", "lsof -p", []string{"lsof", "git"}, files},
		{"maps", "git log", "/proc/PID/maps", []string{"git"}, mappings},
		{"sockets", "the whole machine", "ss", []string{"ss"}, sockets},
		{"bpflist", "the whole machine", "bpftool prog", []string{"bpftool"}, bpflist},
	}
}

// stable returns the keys that the reference lists both before and after run.
func stable(ctx context.Context, list func(context.Context) (map[string]bool, error), run func() error) (map[string]bool, error) {
	before, err := list(ctx)
	if err != nil {
		return nil, err
	}
	if err := run(); err != nil {
		return nil, err
	}
	after, err := list(ctx)
	if err != nil {
		return nil, err
	}
	for key := range before {
		if !after[key] {
			delete(before, key)
		}
	}
	return before, nil
}

// missingFrom counts the keys that are in no row.
func missingFrom(want map[string]bool, rows []row, key func(row) string) (n float64) {
	got := map[string]bool{}
	for _, r := range rows {
		got[key(r)] = true
	}
	for k := range want {
		if !got[k] {
			fmt.Fprintf(os.Stderr, "missing: %s\n", k)
			n++
		}
	}
	return n
}

func tasks(ctx context.Context, m *machine) ([]figure, error) {
	var out *observed
	list := func(ctx context.Context) (map[string]bool, error) {
		text, err := output(ctx, "ps", "-eL", "-o", "pid=,lwp=,comm=")
		all := map[string]bool{}
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			if len(f) > 2 && f[2] != "ps" && !(f[0] == "1" && hidden() > 0) {
				all[f[0]+"/"+f[1]] = true
			}
		}
		return all, err
	}
	want, err := stable(ctx, list, func() (err error) {
		out, err = m.observe(ctx, nil, "tasks", "--threads")
		return err
	})
	if err != nil {
		return nil, err
	}
	missing := missingFrom(want, out.rows, func(r row) string {
		return strconv.Itoa(int(r.num("pid"))) + "/" + strconv.Itoa(int(r.num("tid")))
	})
	return []figure{{"threads that ps lists before and after", float64(len(want)) - missing, float64(len(want)), 0, ""}}, nil
}

// heldGitLog starts git log but does not release it, so that its descriptors and mappings do not
// change.
func (m *machine) heldGitLog(ctx context.Context) (*held, error) {
	return hold(ctx, nil, "git", "-C", m.root, "log")
}

func files(ctx context.Context, m *machine) ([]figure, error) {
	h, err := m.heldGitLog(ctx)
	if err != nil {
		return nil, err
	}
	defer h.close()
	text, err := output(ctx, "lsof", "-nP", "-p", strconv.Itoa(h.pid), "-F", "ftin")
	if err != nil {
		return nil, err
	}
	want := map[string]bool{}
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "f"); ok {
			if _, err := strconv.Atoi(strings.TrimSpace(name)); err == nil {
				want[strings.TrimSpace(name)] = true
			}
		}
	}
	out, err := m.observe(ctx, nil, "files", "--open", "--pid", strconv.Itoa(h.pid))
	if err != nil {
		return nil, err
	}
	if err := h.finish(); err != nil {
		return nil, err
	}
	missing := missingFrom(want, out.rows, func(r row) string { return strconv.Itoa(int(r.num("fd"))) })
	return []figure{
		{"descriptors", float64(len(out.rows)), float64(len(want)), 0, ""},
		{"descriptors that lsof lists and files does not", missing, 0, 0, ""},
	}, nil
}

func mappings(ctx context.Context, m *machine) ([]figure, error) {
	h, err := m.heldGitLog(ctx)
	if err != nil {
		return nil, err
	}
	defer h.close()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(h.pid), "maps"))
	if err != nil {
		return nil, fmt.Errorf("read mappings: %w", err)
	}
	var areas, size float64
	for line := range strings.Lines(string(text)) {
		var start, end uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err == nil && !strings.Contains(line, "[vsyscall]") {
			areas++
			size += float64(end - start)
		}
	}
	out, err := m.observe(ctx, nil, "maps", "--pid", strconv.Itoa(h.pid))
	if err != nil {
		return nil, err
	}
	if err := h.finish(); err != nil {
		return nil, err
	}
	return []figure{
		{"areas, without [vsyscall]", float64(len(out.rows)), areas, 0, ""},
		{"bytes", out.sum("size_bytes"), size, 0, ""},
	}, nil
}

func sockets(ctx context.Context, m *machine) ([]figure, error) {
	opened, err := m.openSockets()
	for _, c := range opened {
		defer c.Close()
	}
	if err != nil {
		return nil, err
	}
	var figures []figure
	for _, kind := range []struct{ what, flag, args string }{
		{"TCP sockets", "--tcp", "-tanOH"}, {"UDP sockets", "--udp", "-uanOH"}, {"UNIX sockets", "--unix", "-xanOH"},
	} {
		var out *observed
		list := func(ctx context.Context) (map[string]bool, error) {
			text, err := output(ctx, "ss", kind.args, "-e")
			all := map[string]bool{}
			for line := range strings.Lines(text) {
				if inode := socketInode(kind.flag, line); inode != "" {
					all[inode] = true
				}
			}
			return all, err
		}
		want, err := stable(ctx, list, func() (err error) {
			out, err = m.observe(ctx, nil, "sockets", kind.flag)
			return err
		})
		if err != nil {
			return nil, err
		}
		missing := missingFrom(want, out.rows, func(r row) string { return strconv.FormatFloat(r.num("inode"), 'f', 0, 64) })
		figures = append(figures, figure{kind.what + " that ss lists before and after", float64(len(want)) - missing, float64(len(want)), 0, ""})
	}
	return figures, nil
}

// openSockets opens some sockets of each kind, so that there are sockets to list.
func (m *machine) openSockets() (opened []io.Closer, err error) {
	for i := range 10 {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return opened, fmt.Errorf("listen: %w", err)
		}
		opened = append(opened, tcp)
		udp, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return opened, fmt.Errorf("open UDP socket: %w", err)
		}
		opened = append(opened, udp)
		unix, err := net.Listen("unix", m.path("socket"+strconv.Itoa(i)))
		if err != nil {
			return opened, fmt.Errorf("open UNIX socket: %w", err)
		}
		opened = append(opened, unix)
	}
	return opened, nil
}

// socketInode returns the inode number of the socket in a line of ss.
func socketInode(flag, line string) string {
	if flag == "--unix" { // u_str ESTAB 0 0 PATH INODE * PEER
		if f := strings.Fields(line); len(f) > 5 {
			return f[5]
		}
		return ""
	}
	_, ino, ok := strings.Cut(line, " ino:")
	if !ok {
		return ""
	}
	return strings.Fields(ino)[0]
}

func bpflist(ctx context.Context, m *machine) ([]figure, error) {
	var out *observed
	list := func(ctx context.Context) (map[string]bool, error) {
		text, err := output(ctx, "bpftool", "prog", "list", "-j")
		if err != nil {
			return nil, err
		}
		var programs []struct{ ID int }
		if err := json.Unmarshal([]byte(text), &programs); err != nil {
			return nil, fmt.Errorf("decode output of bpftool: %w", err)
		}
		all := map[string]bool{}
		for _, p := range programs {
			all[strconv.Itoa(p.ID)] = true
		}
		return all, nil
	}
	var want map[string]bool
	// Another tool runs in the meantime, so that there are programs to list.
	_, err := m.observe(ctx, func() (err error) {
		want, err = stable(ctx, list, func() (err error) {
			out, err = m.observe(ctx, nil, "bpflist", "--programs")
			return err
		})
		return err
	}, "tcplife")
	if err != nil {
		return nil, err
	}
	missing := missingFrom(want, out.rows, func(r row) string { return strconv.Itoa(int(r.num("id"))) })
	return []figure{{"programs that bpftool lists before and after", float64(len(want)) - missing, float64(len(want)), 0, ""}}, nil
}
