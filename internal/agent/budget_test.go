package agent

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/metric"
	"github.com/corescope/corescope/internal/tool"
)

// budgetAgent returns an agent with runners that only record the cause of their end.
func budgetAgent(t *testing.T, names ...string) (*Agent, []context.Context) {
	t.Helper()
	own, err := newOwn(metric.NewStore(metric.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{host: &host{own: own}, ErrOut: &safeBuffer{}}
	var runs []context.Context
	for _, name := range names {
		ctx, end := context.WithCancelCause(context.Background())
		r := &runner{entry: Entry{Tool: name}}
		r.setRun(nil, end)
		a.runners = append(a.runners, r)
		runs = append(runs, ctx)
	}
	return a, runs
}

func TestBudget(t *testing.T) {
	for _, tt := range []struct {
		programs, own [2]float64
		paused        int // -1 for none
	}{
		{[2]float64{0.004, 0.003}, [2]float64{0.001, 0.001}, -1},
		{[2]float64{0.006, 0.003}, [2]float64{0, 0.0011}, 0},
		{[2]float64{0.006, 0.003}, [2]float64{0, 0.004}, 1},
		{[2]float64{}, [2]float64{0.02, 0.01}, 0},
	} {
		a, runs := budgetAgent(t, "first", "second")
		var costs []cost
		for i, r := range a.runners {
			costs = append(costs, cost{runner: r, runs: r.cost().runs, programs: tt.programs[i], own: tt.own[i]})
		}
		a.enforce(costs, 0.01)
		for i, run := range runs {
			var p *pause
			isPaused := errors.As(context.Cause(run), &p)
			if isPaused != (i == tt.paused) {
				t.Errorf("%+v: tool %d: %v", tt, i, context.Cause(run))
			}
			if isPaused && (p.length != pauseFor || !strings.Contains(p.Error(), "max_cpu")) {
				t.Errorf("pause of %s: %s", p.length, p)
			}
		}
	}
	a, _ := budgetAgent(t)
	a.enforce(nil, 0.01)
}

// TestPauseOfATool checks that a tool that is paused already is not paused in place of one that runs, even if
// the agent's CPU time counts as its own.
func TestPauseOfATool(t *testing.T) {
	a, runs := budgetAgent(t, "paused", "runs")
	a.runners[0].setRun(nil, nil)
	m := newMeter(a.all)
	m.at, m.cpu = time.Now().Add(-time.Second), -time.Second
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	costs, _ := m.measure(ctx, time.Second) // without privileges only the agent is measured
	a.enforce(costs, 0.01)
	if context.Cause(runs[0]) != nil || context.Cause(runs[1]) == nil {
		t.Errorf("the paused tool: %v; the one that runs: %v", context.Cause(runs[0]), context.Cause(runs[1]))
	}
	a.runners[1].setRun(nil, nil)
	costs, _ = m.measure(ctx, time.Second)
	a.enforce(costs, 0) // nothing runs
}

// TestMaxCPU checks that the limit of the command line takes precedence, and that a reload can change the
// other one.
func TestMaxCPU(t *testing.T) {
	a := &Agent{config: &Config{MaxCPU: 2}}
	if got := a.maxCPU(); got != 0.02 {
		t.Errorf("limit %v, want that of the configuration", got)
	}
	if err := (&Config{MaxCPU: 3, MaxMemory: 1}).isReloadable(a.config); err != nil {
		t.Errorf("reload: %v", err)
	}
	a.MaxCPU = 5
	if got := a.maxCPU(); got != 0.05 {
		t.Errorf("limit %v, want that of the command line", got)
	}
	var errOut strings.Builder
	c := Command{Out: io.Discard, ErrOut: &errOut}
	if code := c.Run(t.Context(), []string{"--max-cpu", "1"}); code != tool.ExitUsage || !strings.Contains(errOut.String(), `--max-cpu: "1" is not a percentage`) {
		t.Errorf("--max-cpu 1: exit code %d, %s", code, errOut.String())
	}
}

// TestReadyWhilePaused checks that an agent is ready while max_cpu pauses a tool, and not while a tool
// fails.
func TestReadyWhilePaused(t *testing.T) {
	a, _ := budgetAgent(t, "first", "second")
	a.runners[0].setState(&pause{pauseFor, "paused"})
	if err := a.Ready(); err != nil {
		t.Errorf("a tool is paused: %v", err)
	}
	a.runners[1].setState(errStarting)
	if err := a.Ready(); !errors.Is(err, errStarting) || strings.Contains(err.Error(), "first") {
		t.Errorf("a tool starts: %v", err)
	}
}

// TestMeter divides the CPU time of the agent by the rows that tools delivered.
func TestMeter(t *testing.T) {
	a, _ := budgetAgent(t, "first", "second")
	m := newMeter(a.all)
	m.at, m.cpu = time.Now().Add(-time.Second), 0
	a.runners[0].rows.Add(30)
	a.runners[1].rows.Add(10)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	costs, _ := m.measure(ctx, time.Second) // without privileges only the agent is measured
	if len(costs) != 2 || costs[0].own <= 0 {
		t.Fatalf("%+v", costs)
	}
	if ratio := costs[0].own / costs[1].own; ratio < 2.99 || ratio > 3.01 {
		t.Errorf("the tools have %v and %v of the agent, want a ratio of 3", costs[0].own, costs[1].own)
	}
}
