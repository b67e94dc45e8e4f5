package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// comparisons lists all comparisons.
func comparisons() []comparison {
	return slices.Concat(callCases(), scriptCases(), blockCases(), networkCases(), wireCases(), pageCases(), listCases(), schedulerCases(), stackCases(), userCases(), functionCases(), kernelCases(), languageCases(), databaseCases())
}

const clone = "git clone"

// callCases compare with an strace log of the same run.
func callCases() []comparison {
	needs := []string{"strace", "git"}
	return []comparison{
		{"syscount", clone, "strace -f", needs, syscount},
		{"opensnoop", clone, "strace -f", needs, opensnoop},
		{"execsnoop", clone, "strace -f", needs, execsnoop},
		{"filetop", clone, "strace -f", needs, filetop},
		{"fsslower", clone, "strace -f", needs, fsslower},
		{"fsdist", clone, "strace -f", needs, fsdist},
		{"vfsstat", clone, "strace -f", needs, vfsstat},
	}
}

// traced runs a clone of the project's repository under a tool and strace.
func (m *machine) traced(ctx context.Context, calls []string, args ...string) (*observed, []call, error) {
	log := m.path(args[0] + ".strace")
	h, err := hold(ctx, straceArgs(log, calls...),
		"git", "clone", "--quiet", "--no-local", "--depth", "1", "file://"+m.root, m.path("clone-"+args[0]))
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

// syscount compares the count of each system call. The tool counts neither calls that do not return
// nor rt_sigreturn, which ends a signal handler. The held shell may or may not be in its read when
// the tool attaches.
func syscount(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, err := m.traced(ctx, nil, "syscount")
	if err != nil {
		return nil, err
	}
	ours, theirs := map[string]float64{}, map[string]float64{}
	for _, r := range out.rows {
		ours[r.str("syscall")] += r.num("count")
	}
	returned := func(c call) bool { return !c.noReturn && c.name != "rt_sigreturn" }
	for _, c := range calls {
		if returned(c) {
			theirs[c.name]++
		}
	}
	figures := []figure{
		{"calls", out.sum("count") + out.lost(), count(calls, returned), 1, "the read in which the program waits when the tool attaches"},
		{"failed calls", out.sum("errors"), count(calls, func(c call) bool { return returned(c) && c.ret == -1 }), 0, ""},
	}
	names := slices.Sorted(maps.Keys(theirs))
	slices.SortStableFunc(names, func(a, b string) int { return int(theirs[b] - theirs[a]) })
	differ := 0.0
	for _, name := range names {
		if ours[name] != theirs[name] && name != "read" {
			figures = append(figures, figure{name, ours[name], theirs[name], 0, ""})
			differ++
		}
	}
	return append(figures, figure{fmt.Sprintf("system calls, out of %d, whose counts differ, without read", len(names)), differ, 0, 0, ""}), nil
}

func isOpen(c call) bool {
	return c.name == "open" || c.name == "openat" || c.name == "openat2" || c.name == "creat"
}

func opensnoop(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, err := m.traced(ctx, []string{"open", "openat", "openat2", "creat"}, "opensnoop")
	if err != nil {
		return nil, err
	}
	paths := map[string]int{}
	for _, c := range calls {
		if isOpen(c) {
			if quoted := strings.SplitN(c.args, `"`, 3); len(quoted) == 3 {
				paths[quoted[1]]++
			}
		}
	}
	for _, r := range out.rows {
		paths[string(r.bytes("path"))]--
	}
	differ := 0.0
	for _, n := range paths {
		if n != 0 {
			differ++
		}
	}
	failed := 0.0
	for _, r := range out.rows {
		if r.num("ret") < 0 {
			failed++
		}
	}
	return []figure{
		{"opens", float64(len(out.rows)) + out.lost(), count(calls, isOpen), 0, ""},
		{"failed opens", failed, count(calls, func(c call) bool { return isOpen(c) && c.ret == -1 }), 0, ""},
		{fmt.Sprintf("paths, out of %d, whose counts differ", len(paths)), differ, 0, 0, ""},
	}, nil
}

func execsnoop(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, err := m.traced(ctx, []string{"execve", "execveat"}, "execsnoop", "-x")
	if err != nil {
		return nil, err
	}
	isExec := func(c call) bool { return strings.HasPrefix(c.name, "execve") }
	failed := 0.0
	for _, r := range out.rows {
		if r.num("ret") != 0 {
			failed++
		}
	}
	return []figure{
		{"execs", float64(len(out.rows)) + out.lost(), count(calls, isExec), 0, ""},
		{"failed execs", failed, count(calls, func(c call) bool { return isExec(c) && c.ret == -1 }), 0, ""},
	}, nil
}

// isOnRegularFile reports whether the first argument is a descriptor of a regular file: strace
// shows its path, which begins with a slash. Devices do not count.
func isOnRegularFile(c call) bool {
	_, path, ok := strings.Cut(c.args, "<")
	return ok && strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "/dev/") && !strings.HasPrefix(c.args, "0<pipe")
}

func isFileCall(names ...string) func(call) bool {
	return func(c call) bool {
		return slices.Contains(names, c.name) && isOnRegularFile(c) && c.ret >= 0 && !c.noReturn
	}
}

func bytesOf(calls []call, keep func(call) bool) (n float64) {
	for _, c := range calls {
		if keep(c) {
			n += float64(c.ret)
		}
	}
	return n
}

func filetop(ctx context.Context, m *machine) ([]figure, error) {
	reads, writes := []string{"read", "pread64", "readv", "preadv"}, []string{"write", "pwrite64", "writev", "pwritev"}
	out, calls, err := m.traced(ctx, slices.Concat(reads, writes), "filetop", "3600")
	if err != nil {
		return nil, err
	}
	return []figure{
		{"reads of regular files", out.sum("reads") + out.lost(), count(calls, isFileCall(reads...)), 0, ""},
		{"bytes read", out.sum("read_bytes"), bytesOf(calls, isFileCall(reads...)), 0, ""},
		{"writes of regular files", out.sum("writes"), count(calls, isFileCall(writes...)), 0, ""},
		{"bytes written", out.sum("write_bytes"), bytesOf(calls, isFileCall(writes...)), 0, ""},
	}, nil
}

// diskCalls are the system calls of the operations on files that are compared.
func diskCalls() map[string][]string {
	return map[string][]string{
		"read":  {"read", "pread64", "readv", "preadv"},
		"write": {"write", "pwrite64", "writev", "pwritev"},
		"fsync": {"fsync", "fdatasync"},
	}
}

// onExt4 runs the clone under a tool that observes ext4, and returns the counts of strace by
// operation.
func (m *machine) onExt4(ctx context.Context, args ...string) (*observed, map[string]float64, error) {
	fs, err := output(ctx, "stat", "-f", "-c", "%T", m.scratch)
	if err != nil {
		return nil, nil, err
	}
	if fs = strings.TrimSpace(fs); fs != "ext2/ext3" {
		return nil, nil, fmt.Errorf("%w: the scratch directory is on %s, not ext4", errMissing, fs)
	}
	out, calls, err := m.traced(ctx, slices.Concat(slices.Collect(maps.Values(diskCalls()))...), args...)
	counts := map[string]float64{}
	for op, names := range diskCalls() {
		// The clone and the programs are on ext4, /proc and /sys are not.
		counts[op] = count(calls, func(c call) bool {
			return isFileCall(names...)(c) && !strings.Contains(c.args, "</proc/") && !strings.Contains(c.args, "</sys/")
		})
	}
	return out, counts, err
}

func fsslower(ctx context.Context, m *machine) ([]figure, error) {
	out, counts, err := m.onExt4(ctx, "fsslower", "-m", "0", "-t", "ext4")
	if err != nil {
		return nil, err
	}
	var figures []figure
	for _, op := range slices.Sorted(maps.Keys(counts)) {
		figures = append(figures, figure{op + " operations on ext4", float64(len(out.where("operation", op).rows)), counts[op], 0, ""})
	}
	return figures, nil
}

func fsdist(ctx context.Context, m *machine) ([]figure, error) {
	out, counts, err := m.onExt4(ctx, "fsdist", "-t", "ext4")
	if err != nil {
		return nil, err
	}
	ours := map[string]float64{}
	for _, r := range out.rows {
		key, _ := r["key"].(map[string]any)
		ours[row(key).str("operation")] += r.num("count")
	}
	var figures []figure
	for _, op := range slices.Sorted(maps.Keys(counts)) {
		figures = append(figures, figure{op + " operations on ext4", ours[op], counts[op], 0, ""})
	}
	return figures, nil
}

// vfsstat compares successful calls: failed ones may return before they reach a file system.
func vfsstat(ctx context.Context, m *machine) ([]figure, error) {
	names := map[string]string{"fsyncs": "fsync", "mkdirs": "mkdir", "unlinks": "unlink", "rmdirs": "rmdir"}
	out, calls, err := m.traced(ctx, slices.Collect(maps.Values(names)), "vfsstat", "3600")
	if err != nil {
		return nil, err
	}
	var figures []figure
	for _, column := range slices.Sorted(maps.Keys(names)) {
		want := count(calls, func(c call) bool { return c.name == names[column] && c.ret >= 0 })
		if want > 0 {
			figures = append(figures, figure{column, out.sum(column), want, 0, ""})
		}
	}
	return figures, nil
}
