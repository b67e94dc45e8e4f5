package source

import (
	"testing"
	"time"

	"github.com/corescope/corescope/internal/system"
)

// TestMissing compares the samples that a CPU lacks after two reports of a second each, with 100
// samples per second.
func TestMissing(t *testing.T) {
	const period = 10 * time.Millisecond
	for _, tt := range []struct {
		name         string
		taken, idle  [2]uint64 // since the start, at each report
		idleTime     [2]time.Duration
		steal        [2]time.Duration
		unbusy, lost [2]uint64
	}{
		{"all are taken", [2]uint64{100, 200}, [2]uint64{40, 80}, [2]time.Duration{4e8, 8e8}, [2]time.Duration{}, [2]uint64{}, [2]uint64{}},
		{"one is late", [2]uint64{99, 199}, [2]uint64{}, [2]time.Duration{}, [2]time.Duration{}, [2]uint64{}, [2]uint64{}},
		{"idle without a sample", [2]uint64{}, [2]uint64{}, [2]time.Duration{1e9, 2e9}, [2]time.Duration{}, [2]uint64{99, 100}, [2]uint64{}},
		{"busy, half are taken", [2]uint64{50, 100}, [2]uint64{}, [2]time.Duration{}, [2]time.Duration{}, [2]uint64{}, [2]uint64{49, 50}},
		{"half idle, the busy half is taken", [2]uint64{50, 100}, [2]uint64{}, [2]time.Duration{5e8, 1e9}, [2]time.Duration{}, [2]uint64{49, 50}, [2]uint64{}},
		{"a fifth idle, of which half are taken", [2]uint64{50, 100}, [2]uint64{10, 20}, [2]time.Duration{2e8, 4e8}, [2]time.Duration{}, [2]uint64{11, 10}, [2]uint64{38, 40}},
		{"stolen for half of the time", [2]uint64{50, 100}, [2]uint64{}, [2]time.Duration{}, [2]time.Duration{4.9e8, 9.9e8}, [2]uint64{}, [2]uint64{}},
	} {
		c := &cpuDue{}
		for i := range 2 {
			c.due += 100
			m := c.missing(1, cpuSamples{tt.taken[i], tt.idle[i]}, system.CPUTime{Idle: tt.idleTime[i], Steal: tt.steal[i]}, period)
			if m != (missing{1, tt.unbusy[i], tt.lost[i]}) {
				t.Errorf("%s: report %d: %+v, want %d idle and %d lost", tt.name, i+1, m, tt.unbusy[i], tt.lost[i])
			}
		}
	}
}
