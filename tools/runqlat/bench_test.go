package runqlat

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tooltest"
)

// BenchmarkCost measures the cost of the programs in the kernel, in ns per run, while two tasks
// pass a byte back and forth 100,000 times on one CPU, and the cost of the programs of libbpf-tools
// at the same time, if installed.
func BenchmarkCost(b *testing.B) {
	for b.Loop() {
		b.Run("ours", func(b *testing.B) {
			for b.Loop() {
				measure(b, "queue__")
			}
		})
		b.Run("peer", func(b *testing.B) {
			peer := tooltest.StartPeer(b, "runqlat")
			peer.Await(b, "Tracing", nil)
			for b.Loop() {
				measure(b, "sched_")
			}
			peer.Stop(b)
		})
	}
}

// measure runs the tool and the load, and reports the cost of the programs with this name prefix.
func measure(b *testing.B, prefix string) {
	b.Helper()
	tooltest.Root(b)
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Skipf("the kernel does not measure run times: %v", err)
	}
	defer stats.Close()
	cpu := schedtest.CPUs(b)[0]
	one, other := schedtest.Pair(b, cpu, cpu, nil)
	tooltest.JSON(b, Tool, nil, func() {
		ns, runs := programs(b, prefix)
		schedtest.Play(b, one, other, 100000)
		endNs, endRuns := programs(b, prefix)
		b.ReportMetric(float64(endNs-ns)/float64(endRuns-runs), "ns/event")
	})
}

// programs sums the run times of all programs with this name.
func programs(b *testing.B, prefix string) (ns, runs uint64) {
	b.Helper()
	for id := ebpf.ProgramID(0); ; {
		var err error
		if id, err = ebpf.ProgramGetNextID(id); err != nil {
			return ns, runs
		}
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		info, err := p.Info()
		if err == nil && strings.HasPrefix(info.Name, prefix) {
			if s, err := p.Stats(); err == nil {
				ns += uint64(s.Runtime)
				runs += s.RunCount
			}
		}
		p.Close()
	}
}
