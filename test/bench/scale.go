package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// tasksArg makes this program start sleeping threads: "bench tasks COUNT". It prints a line when
// all have started, and exits at the end of its standard input.
const tasksArg = "tasks"

// fewTasks is the number of sleeping tasks of the reference measurement.
const fewTasks = 10

// manyTasks are the numbers of sleeping tasks to compare with fewTasks.
var manyTasks = []int{1_000, 30_000}

// scaled are the benchmarks that run with sleeping tasks.
var scaled = []benchmark{
	{tool: "opensnoop", load: "opens", unit: "open", count: 100_000, rows: 1},
	{tool: "runqlat", load: "trips", unit: "round trip", count: 100_000},
}

// manyKeys are the numbers of keys to compare: files that the load writes to in turn.
var manyKeys = []int{1, 100, 10_000}

// scale measures whether BPF run time grows with the number of tasks, keys or CPUs.
func (s *settings) scale(ctx context.Context) ([]result, error) {
	if !s.isFull {
		return nil, nil
	}
	var all []result
	for i := range scaled {
		m, err := newMeasurer(&scaled[i], s)
		if err != nil {
			return nil, err
		}
		m.rounds = min(s.rounds, 3)
		results, err := m.scale(ctx)
		m.close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name(), err)
		}
		all = append(all, results...)
	}
	keyed, err := s.scaleKeys(ctx)
	if err != nil {
		return nil, err
	}
	machines, err := scaleCPUs(ctx)
	return slices.Concat(all, keyed, machines), err
}

func (s *settings) scaleKeys(ctx context.Context) ([]result, error) {
	var all []result
	var few float64
	for _, keys := range manyKeys {
		b := benchmark{tool: "filetop", options: []string{"-C"}, load: fmt.Sprintf("writes%d", keys), count: 500_000}
		m, err := newMeasurer(&b, s)
		if err != nil {
			return nil, err
		}
		m.rounds = min(s.rounds, 3)
		perWrite, err := m.perEvent(ctx)
		m.close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name(), err)
		}
		if few == 0 {
			few = perWrite
			continue
		}
		all = append(all, result{
			Tool: m.name(), Figure: fmt.Sprintf("BPF run time, %d keys ÷ %d", keys, manyKeys[0]), Unit: "×",
			Ours: perWrite / few, Limit: 1.1,
		})
	}
	return all, nil
}

func (m *measurer) scale(ctx context.Context) ([]result, error) {
	few, err := m.withTasks(ctx, fewTasks)
	if err != nil {
		return nil, err
	}
	var all []result
	for _, n := range manyTasks {
		many, err := m.withTasks(ctx, n)
		if err != nil {
			return nil, err
		}
		all = append(all, result{
			Tool: m.name(), Figure: fmt.Sprintf("BPF run time, %d tasks ÷ %d", n, fewTasks), Unit: "×",
			Ours: many / few, Limit: 1.1,
		})
	}
	return all, nil
}

// withTasks returns the median BPF run time per event in ns while n tasks sleep.
func (m *measurer) withTasks(ctx context.Context, n int) (float64, error) {
	stop, err := startTasks(ctx, n)
	if err != nil {
		return 0, err
	}
	defer stop()
	progress("%s: %d tasks", m.name(), n)
	return m.perEvent(ctx)
}

// perEvent returns the median BPF run time per event in ns.
func (m *measurer) perEvent(ctx context.Context) (float64, error) {
	var values []float64
	for round := range m.rounds {
		progress("%s: %s, round %d of %d", m.name(), m.load, round+1, m.rounds)
		s, err := m.measure(ctx, &m.subjects[0], m.count, 0)
		if err != nil {
			return 0, err
		}
		values = append(values, float64(s.kernel)/float64(s.load.Count))
	}
	return median(values), nil
}

func startTasks(ctx context.Context, n int) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, tasksArg, strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start tasks: %w", err)
	}
	stop = func() {
		in.Close()
		_ = cmd.Wait()
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		stop()
		return nil, fmt.Errorf("start %d tasks: %w", n, err)
	}
	return stop, nil
}

func runTasks(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s: want COUNT", tasksArg)
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	debug.SetMaxThreads(n + 100)
	var started sync.WaitGroup
	for range n {
		started.Add(1)
		go func() {
			runtime.LockOSThread()
			started.Done()
			_ = unix.Pause()
		}()
	}
	started.Wait()
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return nil
}
