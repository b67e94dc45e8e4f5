package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools"
)

func TestMain(m *testing.M) { schedtest.Main(m) }

// simulated is a tool whose programs take fixed CPU time, and more for the events that they count.
type simulated struct {
	fixed, counted, own float64
	samples             bool
}

func (s simulated) cost(r *runner) cost {
	c := r.cost()
	c.programs, c.own, c.samples = s.fixed+s.counted/float64(c.sample), s.own, s.samples
	return c
}

// simulate enforces the limit this many times, and returns N of each tool at the end, 0 of one that is paused.
func simulate(t *testing.T, a *Agent, runs []context.Context, tools []simulated, limit float64, rounds int) []uint32 {
	t.Helper()
	for range rounds {
		var costs []cost
		for i, r := range a.runners {
			if runs[i].Err() == nil {
				costs = append(costs, tools[i].cost(r))
			}
		}
		a.enforce(costs, limit)
	}
	n := make([]uint32, len(tools))
	for i, r := range a.runners {
		var p *pause
		if n[i] = r.sampled(); errors.As(context.Cause(runs[i]), &p) {
			n[i] = 0
		}
	}
	return n
}

// TestSampling checks N of each tool after many measurements of the same load.
func TestSampling(t *testing.T) {
	const cheap = 0.001
	rare := simulated{fixed: cheap}
	for _, tt := range []struct {
		name  string
		tools []simulated
		want  []uint32
	}{
		{"below the limit", []simulated{{counted: 0.009, samples: true}, rare}, []uint32{1, 1}},
		{"half is enough", []simulated{{counted: 0.017, samples: true}, rare}, []uint32{2, 1}},
		{"an eighth is enough", []simulated{{fixed: 0.001, counted: 0.06, samples: true}, rare}, []uint32{8, 1}},
		{"the most that is needed", []simulated{{counted: 0.5, samples: true}, rare}, []uint32{64, 1}},
		{"not even the most is enough", []simulated{{counted: 0.7, samples: true}, rare}, []uint32{0, 1}},
		{"fixed cost", []simulated{{fixed: 0.012, counted: 0.03, samples: true}, rare}, []uint32{0, 1}},
		{"cost of the agent", []simulated{{counted: 0.003, own: 0.02, samples: true}, rare}, []uint32{0, 1}},
		{"a tool that cannot", []simulated{{counted: 0.02}, rare}, []uint32{0, 1}},
		{"another tool is enough", []simulated{{counted: 0.007}, {counted: 0.005, samples: true}}, []uint32{1, 2}},
		{"another tool is not enough", []simulated{{counted: 0.011}, {counted: 0.005, samples: true}}, []uint32{0, 1}},
		{"two tools", []simulated{{counted: 0.02, samples: true}, {counted: 0.02, samples: true}}, []uint32{4, 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, runs := budgetAgent(t, "first", "second")
			for _, rounds := range []int{20, 1, 1, 1} { // it does not change back and forth
				if got := simulate(t, a, runs, tt.tools, 0.01, rounds); fmt.Sprint(got) != fmt.Sprint(tt.want) {
					t.Errorf("N is %v, want %v", got, tt.want)
				}
			}
		})
	}
}

// TestSamplingReturns checks that a tool counts all events again when the load is over, step by step, and
// that each change is reported.
func TestSamplingReturns(t *testing.T) {
	a, runs := budgetAgent(t, "first")
	load, idle := simulated{counted: 0.06, samples: true}, simulated{counted: 0.0001, samples: true}
	if got := simulate(t, a, runs, []simulated{load}, 0.01, 20); got[0] != 8 {
		t.Errorf("N is %d under load, want 8", got[0])
	}
	for _, want := range []uint32{4, 2, 1, 1} {
		if got := simulate(t, a, runs, []simulated{idle}, 0.01, 1); got[0] != want {
			t.Errorf("N is %d, want %d", got[0], want)
		}
	}
	log := a.ErrOut.(*safeBuffer).String()
	for _, want := range []string{"first: counts one of 8 events as 8, because", "first: counts all events again, because", "max_cpu"} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is not reported", want)
		}
	}
	if n := strings.Count(log, "first: counts"); n != 6 {
		t.Errorf("%d changes are reported, want 6:\n%s", n, log)
	}
}

// TestSamplingStaysValid enforces a limit for tools with random costs: N is always valid.
func TestSamplingStaysValid(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		a, runs := budgetAgent(t, "first", "second")
		for range 50 {
			tools := []simulated{{r.Float64() / 100, r.Float64(), r.Float64() / 100, true}, {counted: r.Float64() / 50}}
			for _, n := range simulate(t, a, runs, tools, 0.03, 1) {
				if n > tool.MaxSample || n&(n-1) != 0 {
					t.Fatalf("N is %d", n)
				}
			}
		}
	}
}

// TestSamplingOfAgent makes an agent count fewer waits, by the cost that it measures while two threads wake each
// other. The metric and a message report it, counts go on, and end when the limit is higher.
func TestSamplingOfAgent(t *testing.T) {
	r := start(t, "tools:\n  - tool: runqlat\n  - tool: oomkill\n")
	r.awaitReady()
	const sampling, counts = `corescope_tool_sampling{tool="runqlat"}`, "corescope_runqlat_duration_seconds_count"
	if n := r.scrape()[sampling]; n != 1 {
		t.Errorf("%s is %v, want 1", sampling, n)
	}
	a, b := schedtest.Pair(t, schedtest.CPUs(t)[0], schedtest.CPUs(t)[0], nil)
	m := newMeter(r.agent.all)
	// under measures the agent under load.
	under := func() (costs []cost, sum, avoidable float64) {
		const trips = 1000
		for avoidable == 0 {
			ended := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				defer close(ended)
				costs, sum, avoidable = nil, 0, 0
				var err error
				if costs, err = m.measure(ctx, time.Minute); err != nil {
					t.Error(err)
				}
				for _, c := range costs {
					sum, avoidable = sum+c.sum(), avoidable+c.avoidable()
				}
			}()
			schedtest.Play(t, a, b, trips)
			cancel()
			<-ended
			if t.Failed() {
				t.FailNow()
			}
		}
		return costs, sum, avoidable
	}
	for _, want := range []float64{2, 4} {
		costs, sum, avoidable := under()
		if !r.agent.enforce(costs, sum-avoidable/2) {
			t.Fatalf("the limit is exceeded, and nothing changes: %+v", costs)
		}
		if n := r.scrape()[sampling]; n != want {
			t.Errorf("%s is %v, want %v", sampling, n, want)
		}
	}
	if err := r.agent.Ready(); err != nil {
		t.Errorf("ready: %v", err)
	}
	// Waits that began before have other weights, and can end later.
	last, multiples := r.scrape()[counts], 0
	r.await("counts in multiples of 4", func() bool {
		n := r.scrape()[counts]
		switch added := int(n - last); {
		case added == 0:
		case added%4 == 0:
			multiples++
		default:
			multiples = 0
		}
		last = n
		return multiples >= 8
	})
	for _, want := range []float64{2, 1} {
		costs, sum, _ := under()
		if r.agent.enforce(costs, 10*sum) {
			t.Errorf("below the limit, a tool counts fewer events")
		}
		if n := r.scrape()[sampling]; n != want {
			t.Errorf("%s is %v, want %v", sampling, n, want)
		}
	}
	if want := "runqlat: counts all events again"; !strings.Contains(r.log.String(), want) {
		t.Errorf("%q is not reported", want)
	}
}

// TestLimitExceeded lowers the limit below the cost of the agent itself: a tool is paused, and the other one as
// well. Nothing is sampled.
func TestLimitExceeded(t *testing.T) {
	const short = 50 * time.Millisecond
	a := &Agent{Tools: tools.All(), schedule: schedule{short, 2 * short, 2 * short}}
	r := startAgent(t, a, "tools:\n  - tool: runqlat\n  - tool: oomkill\n")
	r.awaitReady()
	r.agent.mutex.Lock()
	r.agent.MaxCPU = 1e-9
	r.agent.mutex.Unlock()
	for _, name := range []string{"runqlat", "oomkill"} {
		r.await("a pause of "+name, func() bool { return r.scrape()[`corescope_tool_paused{tool="`+name+`"}`] == 1 })
	}
	if !strings.Contains(r.log.String(), "more than the 0.00 % of max_cpu") || strings.Contains(r.log.String(), "counts one of") {
		t.Error("the messages are wrong")
	}
}
