package loads

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestProc compares with /proc/loadavg, which rounds to two decimals. The values change every five
// seconds, so both readings must be within that time: one of several rows agrees.
func TestProc(t *testing.T) {
	var seen []string
	res := tooltest.JSONReports(t, Tool, []string{"0.05"}, func(reports func() int) {
		for reports() < 4 && t.Context().Err() == nil {
			text, err := os.ReadFile("/proc/loadavg")
			if err != nil {
				t.Error(err)
			}
			seen = append(seen, string(text))
		}
	})
	if len(res.Rows) < 4 {
		t.Fatalf("%d rows", len(res.Rows))
	}
	for _, r := range res.Rows[:4] {
		if !anyMatches(seen, r) {
			t.Errorf("row %v is none of the readings of /proc/loadavg, from %s to %s", r, seen[0], seen[len(seen)-1])
		}
		if n := r.Num("threads"); n < 2 {
			t.Errorf("%v threads", n)
		}
	}
}

// anyMatches reports whether a line of /proc/loadavg has the load averages of the row.
func anyMatches(lines []string, r tooltest.Row) bool {
	for _, line := range lines {
		var one, five, fifteen float64
		fmt.Sscan(line, &one, &five, &fifteen)
		if near(one, r.Num("load1")) && near(five, r.Num("load5")) && near(fifteen, r.Num("load15")) {
			return true
		}
	}
	return false
}

func near(rounded, exact float64) bool { return math.Abs(rounded-exact) <= 0.0051 }

// TestText checks that each interval has a line.
func TestText(t *testing.T) {
	out := tooltest.Text(t, Tool, []string{"0.05", "3"}, nil)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 || strings.Join(strings.Fields(lines[0]), " ") != "TIME LOAD1 LOAD5 LOAD15" {
		t.Fatalf("text is %s", out)
	}
	for _, line := range lines[1:] {
		var time string
		var one, five, fifteen float64
		if n, _ := fmt.Sscan(line, &time, &one, &five, &fifteen); n != 4 || len(line)-strings.LastIndexByte(line, '.') != 4 {
			t.Errorf("line %q", line)
		}
	}
}
