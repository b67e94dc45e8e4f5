package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const sleeperProgram = "python3 sleeper"

// python is Debian's interpreter: one that is found by name can be a shell script.
const python = "/usr/bin/python3"

// sleeper calls usleep, and logs the times before and after each call.
const sleeper = `
import ctypes, sys, time
libc = ctypes.CDLL(None)
with open(sys.argv[1], "w") as log:
    for i in range(100):
        begin = time.monotonic_ns()
        libc.usleep(i % 10 * 1000)
        log.write("%d %d\n" % (begin, time.monotonic_ns()))
`

func functionCases() []comparison {
	needs := []string{python}
	return []comparison{
		{"funclatency", sleeperProgram, "the program's log", needs, funclatency},
		{"funcslower", sleeperProgram, "the program's log", needs, funcslower},
		{"funcinterval", sleeperProgram, "the program's log", needs, funcinterval},
		{"wakeuptime", sleeperProgram, "sleeps that the program requests", needs, wakeuptime},
		{"offwaketime", sleeperProgram, "wall time minus /proc/PID/schedstat", needs, offwaketime},
		{"stacksnoop", "sh kill", "number of signals", nil, stacksnoop},
		{"tplist", "libstdc++.so.6", "readelf --notes", []string{"readelf"}, tplist},
		{"memleak", "C program", "valgrind", []string{"cc", "valgrind"}, memleak},
		{"bashreadline", "bash", "the shell's history", []string{"bash", "script"}, bashreadline},
		{"bpftop", "corescope opensnoop", "bpftool prog show", []string{"bpftool"}, bpftop},
	}
}

// slept runs a tool while the program sleeps, and returns the begin and end of each call in ns.
func (m *machine) slept(ctx context.Context, args ...string) (out *observed, calls [][2]float64, h *held, err error) {
	script, log := m.path("sleeper.py"), m.path("sleeper.log")
	if err := os.WriteFile(script, []byte(sleeper), 0o644); err != nil {
		return nil, nil, nil, fmt.Errorf("write program: %w", err)
	}
	if h, err = hold(ctx, nil, python, script, log); err != nil {
		return nil, nil, nil, err
	}
	defer h.close()
	if out, err = m.observe(ctx, h.finish, append(args, "--cgroup", h.cgroup)...); err != nil {
		return nil, nil, nil, err
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read log: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var c [2]float64
		if _, err := fmt.Sscan(line, &c[0], &c[1]); err != nil {
			return nil, nil, nil, fmt.Errorf("read log: %w", err)
		}
		calls = append(calls, c)
	}
	return out, calls, h, nil
}

// outside is what the program's log has in addition to the function: the call through ctypes, reading
// the clock, and the probes themselves.
const outside = "2 %: the log includes the call by the interpreter"

func duration(calls [][2]float64) (sum float64) {
	for _, c := range calls {
		sum += c[1] - c[0]
	}
	return sum
}

func funclatency(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, _, err := m.slept(ctx, "funclatency", "c:usleep")
	if err != nil {
		return nil, err
	}
	want := duration(calls) / 1e6
	return []figure{
		{"calls of usleep", out.sum("count") + out.lost(), float64(len(calls)), 0, ""},
		{"time in usleep, ms", out.sum("sum") / 1e6, want, want / 50, outside},
	}, nil
}

func funcslower(ctx context.Context, m *machine) ([]figure, error) {
	const least = 5e6
	out, calls, _, err := m.slept(ctx, "funcslower", "-m", "5", "c:usleep")
	if err != nil {
		return nil, err
	}
	var slow [][2]float64
	for _, c := range calls {
		if c[1]-c[0] >= least {
			slow = append(slow, c)
		}
	}
	want := duration(slow) / 1e6
	return []figure{
		{"calls of usleep that took 5 ms", float64(len(out.rows)) + out.lost(), float64(len(slow)), 1, "1: a call of nearly 5 ms"},
		{"time in these calls, ms", out.sum("latency_ns") / 1e6, want, want / 50, outside},
	}, nil
}

func funcinterval(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, _, err := m.slept(ctx, "funcinterval", "c:usleep")
	if err != nil {
		return nil, err
	}
	want := (calls[len(calls)-1][0] - calls[0][0]) / 1e6
	return []figure{
		{"intervals between calls of usleep", out.sum("count") + out.lost(), float64(len(calls) - 1), 0, ""},
		{"time from the first call to the last one, ms", out.sum("sum") / 1e6, want, want / 50, "2 %: the log is written by the interpreter"},
	}, nil
}

// wakeuptime compares the time in which the program is blocked with its sleeps.
func wakeuptime(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, _, err := m.slept(ctx, "wakeuptime")
	if err != nil {
		return nil, err
	}
	want := 0.0
	for i := range calls {
		want += float64(i % 10)
	}
	ours := out.where("comm", "python3").through("hrtimer_wakeup").sum("total_ns") / 1e6
	return []figure{{"time until a timer wakes the program, ms", ours, want, want / 20, "5 %: timers have a slack of 50 us, and interrupts are delayed"}}, nil
}

func offwaketime(ctx context.Context, m *machine) ([]figure, error) {
	out, _, h, err := m.slept(ctx, "offwaketime")
	if err != nil {
		return nil, err
	}
	want := float64(h.wall-h.cpu) / float64(time.Millisecond)
	return []figure{{"time off the CPU, ms", out.sum("total_ns") / 1e6, want, want / 20, "5 %: the program starts and ends"}}, nil
}

// stacksnoop compares the hits of a tracepoint with the signals that a shell sends.
func stacksnoop(ctx context.Context, m *machine) ([]figure, error) {
	const signals = 30
	h, err := hold(ctx, nil, "sh", "-c", "for i in $(seq "+number(signals)+"); do kill -CONT $$; done")
	if err != nil {
		return nil, err
	}
	defer h.close()
	out, err := m.observe(ctx, h.finish, "stacksnoop", "t:signal:signal_generate", "--cgroup", h.cgroup)
	if err != nil {
		return nil, err
	}
	sent := len(out.through("sys_kill").rows)
	return []figure{{"signals sent by kill(2)", float64(sent) + out.lost(), signals, 0, ""}}, nil
}

// through returns the rows whose kernel stack has a function whose name contains this text.
func (o *observed) through(function string) *observed {
	return &observed{summary: o.summary, rows: slices.DeleteFunc(slices.Clone(o.rows), func(r row) bool {
		frames, _ := r["kernel_stack"].([]any)
		return !slices.ContainsFunc(frames, func(f any) bool {
			frame, _ := f.(map[string]any)
			return strings.Contains(row(frame).str("symbol"), function)
		})
	})}
}

// tplist compares the probes of a library with its notes.
func tplist(ctx context.Context, m *machine) ([]figure, error) {
	const library = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"
	if _, err := os.Stat(library); err != nil {
		return nil, fmt.Errorf("%w: %w", errMissing, err)
	}
	text, err := output(ctx, "readelf", "--notes", "--wide", library)
	if err != nil {
		return nil, err
	}
	theirs := map[string]float64{}
	provider := ""
	for line := range strings.Lines(text) {
		if _, after, ok := strings.Cut(line, "Provider: "); ok {
			line = "Provider: " + after // on the line of the note
		}
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Provider":
			provider = value
		case "Name":
			theirs[provider+":"+value]++
		}
	}
	out, err := m.observe(ctx, nil, "tplist", "-l", library)
	if err != nil {
		return nil, err
	}
	places, different := 0.0, 0.0
	for _, n := range theirs {
		places += n
	}
	for _, r := range out.rows {
		if theirs[r.str("name")] != r.num("places") {
			different++
		}
	}
	return []figure{
		{"USDT probes", float64(len(out.rows)), float64(len(theirs)), 0, ""},
		{"their places", out.sum("places"), places, 0, ""},
		{"probes whose number of places differs", different, 0, 0, ""},
	}, nil
}

// leaks is a program that does not free some of its allocations. It prints nothing.
const leaks = `
#include <stdlib.h>
static void *kept[1000];
int main(void)
{
	for (int i = 0; i < 1000; i++) {
		kept[i] = malloc(16 + i);
		if (i % 3 == 0)
			free(kept[i]);
	}
	for (int i = 1; i < 1000; i += 30)
		kept[i] = realloc(kept[i], 5000);
	return 0;
}
`

// memleak compares allocations that are left at the exit with those that valgrind reports.
func memleak(ctx context.Context, m *machine) ([]figure, error) {
	source, program := m.path("leaks.c"), m.path("leaks")
	if err := os.WriteFile(source, []byte(leaks), 0o644); err != nil {
		return nil, fmt.Errorf("write program: %w", err)
	}
	if _, err := output(ctx, "cc", "-O0", "-o", program, source); err != nil {
		return nil, err
	}
	text, err := exec.CommandContext(ctx, "valgrind", program).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("run valgrind: %w: %s", err, text)
	}
	var bytes, blocks float64
	if _, after, ok := strings.Cut(strings.ReplaceAll(string(text), ",", ""), "in use at exit: "); !ok {
		return nil, fmt.Errorf("valgrind printed no summary: %s", text)
	} else if _, err := fmt.Sscanf(after, "%g bytes in %g blocks", &bytes, &blocks); err != nil {
		return nil, fmt.Errorf("read the summary of valgrind: %w", err)
	}
	out, err := m.observe(ctx, nil, "memleak", "-o", "0", "-c", program)
	if err != nil {
		return nil, err
	}
	return []figure{
		{"bytes in use at the exit", out.sum("bytes"), bytes, 0, ""},
		{"allocations in use at the exit", out.sum("count"), blocks, 0, ""},
	}, nil
}

// bashreadline enters lines in a shell on a terminal, and compares them with its history.
func bashreadline(ctx context.Context, m *machine) ([]figure, error) {
	history := m.path("history")
	out, err := m.observe(ctx, func() error {
		var lines strings.Builder
		for i := range 20 {
			fmt.Fprintf(&lines, "true %d 'a b' # é\n", i)
		}
		cmd := exec.CommandContext(ctx, "script", "--quiet", "--return", "--command", "bash --norc -i", "/dev/null")
		cmd.Env = append(os.Environ(), "HISTFILE="+history, "HISTCONTROL=", "HISTSIZE=1000", "HISTFILESIZE=1000", "LC_ALL=C.UTF-8")
		cmd.Stdin = strings.NewReader(lines.String() + "exit\n")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run bash: %w: %s", err, text)
		}
		return nil
	}, "bashreadline")
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(history)
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	theirs := strings.Split(strings.TrimSpace(string(text)), "\n")
	different := 0.0
	for i, r := range out.rows {
		if i >= len(theirs) || string(r.bytes("command")) != theirs[i] {
			different++
		}
	}
	return []figure{
		{"lines", float64(len(out.rows)) + out.lost(), float64(len(theirs)), 0, ""},
		{"lines with another text", different, 0, 0, ""},
	}, nil
}

// runCounts returns how often each program ran, by ID.
func runCounts(ctx context.Context) (map[float64]float64, error) {
	text, err := output(ctx, "bpftool", "--json", "prog", "show")
	if err != nil {
		return nil, err
	}
	var programs []struct {
		ID   float64 `json:"id"`
		Runs float64 `json:"run_cnt"`
	}
	if err := json.Unmarshal([]byte(text), &programs); err != nil {
		return nil, fmt.Errorf("decode output of bpftool: %w", err)
	}
	counts := map[float64]float64{}
	for _, p := range programs {
		counts[p.ID] = p.Runs
	}
	return counts, nil
}

// bpftop compares the run counts of programs with those that bpftool reads before and after.
func bpftop(ctx context.Context, m *machine) ([]figure, error) {
	observed := exec.CommandContext(ctx, m.path("corescope"), "opensnoop")
	if err := observed.Start(); err != nil {
		return nil, fmt.Errorf("start opensnoop: %w", err)
	}
	defer func() {
		_ = observed.Process.Kill()
		_ = observed.Wait()
	}()
	var before, after map[float64]float64
	out, err := m.observe(ctx, func() (err error) {
		if before, err = runCounts(ctx); err != nil {
			return err
		}
		if _, err = output(ctx, "sh", "-c", "for i in $(seq 100); do cat /dev/null; sleep 0.02; done"); err != nil {
			return err
		}
		after, err = runCounts(ctx)
		return err
	}, "bpftop", "--columns", "+total_runs", "500ms")
	if err != nil {
		return nil, err
	}
	compared, wrong := 0.0, 0.0
	for _, r := range out.rows {
		id, total := r.num("id"), r.num("total_runs")
		if _, ok := after[id]; !ok || r.num("runs") == 0 {
			continue
		}
		compared++
		if total < before[id] || total-r.num("runs") > after[id] {
			wrong++
		}
	}
	if compared == 0 {
		return nil, fmt.Errorf("bpftop has no rows")
	}
	return []figure{{"rows, out of " + number(compared) + ", whose runs are not between those before and after", wrong, 0, 0, ""}}, nil
}
