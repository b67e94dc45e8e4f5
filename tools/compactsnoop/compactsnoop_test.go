package compactsnoop

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

const trigger = "/proc/sys/vm/compact_memory"

// zoneInfo has the numbers of a zone in /proc/zoneinfo.
type zoneInfo map[string]float64

// populated returns the zones with memory, by node and name.
func populated(t *testing.T) map[string]zoneInfo {
	t.Helper()
	text, err := os.ReadFile("/proc/zoneinfo")
	if err != nil {
		t.Fatal(err)
	}
	zones := map[string]zoneInfo{}
	var at zoneInfo
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(strings.Replace(line, "pages free", "free", 1))
		switch {
		case len(f) == 4 && f[0] == "Node":
			at = zoneInfo{}
			zones[strings.Trim(f[1], ",")+" "+f[3]] = at
		case len(f) == 2:
			if n, err := strconv.ParseFloat(f[1], 64); err == nil {
				at[f[0]] = n
			}
		}
	}
	for name, zone := range zones {
		if zone["present"] == 0 {
			delete(zones, name)
		}
	}
	return zones
}

func compact(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(trigger, []byte("1"), 0); err != nil {
		t.Error(err)
	}
}

func root(t *testing.T) {
	t.Helper()
	tooltest.Root(t)
	if _, err := os.Stat(trigger); err != nil {
		t.Skipf("the kernel cannot compact memory (CONFIG_COMPACTION): %v", err)
	}
}

// TestAll compacts all zones, and compares with the zones and watermarks of /proc/zoneinfo.
func TestAll(t *testing.T) {
	root(t)
	zones := populated(t)
	var took time.Duration
	res := tooltest.JSON(t, Tool, []string{"--pid", strconv.Itoa(os.Getpid()), "-K"}, func() {
		begin := time.Now()
		compact(t)
		took = time.Since(begin)
	})
	var sum time.Duration
	for _, r := range res.Events {
		name := strconv.Itoa(int(r.Num("node"))) + " " + r.Str("zone")
		zone := zones[name]
		if zone == nil {
			t.Errorf("zone %q is not populated, or has two rows: %v", name, r)
			continue
		}
		delete(zones, name)
		for key, want := range map[string]any{
			"order": -1., "mode": "SYNC", "fragmentation_index": nil,
			"min_pages": zone["min"], "low_pages": zone["low"], "high_pages": zone["high"],
		} {
			if r[key] != want {
				t.Errorf("zone %s: %s is %v, want %v", name, key, r[key], want)
			}
		}
		if s := r.Str("status"); s != "complete" && s != "partial_skipped" && s != "success" && s != "contended" {
			t.Errorf("zone %s: status %q", name, s)
		}
		if free := r.Num("free_pages"); free > zone["managed"] {
			t.Errorf("zone %s: %v pages are free of %v", name, free, zone["managed"])
		}
		if len(r.Symbols("stack")) == 0 {
			t.Errorf("zone %s: no stack", name)
		}
		sum += time.Duration(r.Num("duration_ns"))
	}
	if len(zones) > 0 {
		t.Errorf("no rows of zones %v", zones)
	}
	if sum <= 0 || sum > took {
		t.Errorf("compactions took %v, want less than %v", sum, took)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost", lost)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	root(t)
	for flags, want := range map[string]string{
		"":      "COMM PID NODE ZONE ORDER MODE LAT(ms) STATUS",
		"-T -e": "TIME(s) COMM PID NODE ZONE ORDER MODE FRAGIDX MIN LOW HIGH FREE LAT(ms) STATUS",
	} {
		args := append(strings.Fields(flags), "-p", strconv.Itoa(os.Getpid()))
		out := tooltest.Text(t, Tool, args, func() { compact(t) })
		header, rows, _ := strings.Cut(out, "\n")
		if got := strings.Join(strings.Fields(header), " "); got != want || !strings.Contains(rows, " SYNC ") {
			t.Errorf("%q: header %q, want %q; rows %.200q", flags, got, want, rows)
		}
	}
}
