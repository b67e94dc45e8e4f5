package histogram

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ofBars returns a histogram with the given counts per bar. All durations in a bar are its lower
// bound.
func ofBars(u Unit, counts map[int]uint64) *Histogram {
	h := New(u)
	for bar, n := range counts {
		ns := uint64(u) << bar
		h.Add(u.SlotOf(ns), Slot{Count: n, Sum: n * ns, Min: ns, Max: ns})
	}
	return h
}

// decades returns a histogram with each percentile in a different bar.
func decades() *Histogram {
	return ofBars(Microseconds, map[int]uint64{0: 500, 1: 400, 2: 90, 3: 9, 4: 1})
}

// TestBarsMatchLibbpfTools compares with the output of libbpf-tools 0.37, in the files, for these
// counts.
func TestBarsMatchLibbpfTools(t *testing.T) {
	tests := []struct {
		file   string
		unit   Unit
		counts map[int]uint64
	}{
		{"runqlat.txt", Microseconds, map[int]uint64{2: 1, 3: 9, 4: 18, 5: 6, 9: 1}},
		{"cpudist_one_bar.txt", Microseconds, map[int]uint64{0: 1}},
		{"cpudist_msecs.txt", Milliseconds, map[int]uint64{1: 2, 10: 12345678}},
		{"cpudist_full_count.txt", Microseconds, map[int]uint64{3: 1, 5: 99999999, 7: 500000}},
		{"cpudist_33_bars.txt", Microseconds, map[int]uint64{0: 3, 2: 7, 32: 5}},
		{"cpudist_34_bars.txt", Microseconds, map[int]uint64{0: 3, 2: 7, 33: 5}},
	}
	for _, tt := range tests {
		want, err := os.ReadFile(filepath.Join("testdata", tt.file))
		if err != nil {
			t.Fatal(err)
		}
		got := ofBars(tt.unit, tt.counts).AppendText(nil)
		bars, stats := got[:min(len(want), len(got))], got[min(len(want), len(got)):]
		if !bytes.Equal(bars, want) || bytes.Count(stats, []byte("\n")) != 1 {
			t.Errorf("%s: printed\n%s\nwant\n%s\nand one line of statistics", tt.file, got, want)
		}
	}
}

func TestAppendText(t *testing.T) {
	tests := []struct {
		name string
		h    *Histogram
		want string
	}{
		{"empty", New(Microseconds), "count 0\n"},
		{"one zero", record(New(Nanoseconds), 0), `     nsecs               : count    distribution
         0 -> 1          : 1        |****************************************|
count 1, mean 0, p50 0, p90 0, p99 0, p99.9 0, max 0
`},
		{"fractions of a unit", record(New(Milliseconds), 417, 2000000, 2500000, 3999999), `     msecs               : count    distribution
         0 -> 1          : 1        |*************                           |
         2 -> 3          : 3        |****************************************|
count 4, mean 2.125104, p50 2, p90 3.999999, p99 3.999999, p99.9 3.999999, max 3.999999
`},
		{"distinct percentiles", decades(), `     usecs               : count    distribution
         0 -> 1          : 500      |****************************************|
         2 -> 3          : 400      |********************************        |
         4 -> 7          : 90       |*******                                 |
         8 -> 15         : 9        |                                        |
        16 -> 31         : 1        |                                        |
count 1000, mean 1.748, p50 1, p90 2, p99 4, p99.9 8, max 16
`},
		{"wide counts", ofBars(Microseconds, map[int]uint64{0: 1, 1: 12345678901}), `     usecs               : count       distribution
         0 -> 1          : 1           |                                        |
         2 -> 3          : 12345678901 |****************************************|
count 12345678902, mean 2, p50 2, p90 2, p99 2, p99.9 2, max 2
`},
	}
	for _, tt := range tests {
		if got := string(tt.h.AppendText([]byte("before\n"))); got != "before\n"+tt.want {
			t.Errorf("%s: printed\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

func TestBarsHaveEqualWidth(t *testing.T) {
	h := ofBars(Nanoseconds, map[int]uint64{0: 1 << 63, 5: 1<<63 - 2, 63: 1})
	lines := strings.Split(string(h.appendBars(nil, h.unit.String())), "\n")
	if len(lines) != 66 {
		t.Fatalf("%d lines, want 66", len(lines))
	}
	for _, line := range lines[2:65] {
		if len(line) != len(lines[1]) {
			t.Errorf("width %d, want %d: %s", len(line), len(lines[1]), line)
		}
	}
}

func TestBarsCountWholeUnits(t *testing.T) {
	for _, u := range units {
		want := map[Bar]uint64{}
		durations := randomDurations(seeded(9), 5000)
		for _, ns := range durations {
			bar := Bar{Lo: 0, Hi: 1}
			for whole := ns / uint64(u); whole > bar.Hi; {
				bar = Bar{Lo: bar.Hi + 1, Hi: bar.Hi*2 + 1}
			}
			want[bar]++
		}
		for _, b := range record(New(u), durations...).Bars() {
			if key := (Bar{Lo: b.Lo, Hi: b.Hi}); b.Count != want[key] {
				t.Errorf("%v: count %d in %d..%d, want %d", u, b.Count, b.Lo, b.Hi, want[key])
			}
			delete(want, Bar{Lo: b.Lo, Hi: b.Hi})
		}
		if len(want) != 0 {
			t.Errorf("%v: missing bars %v", u, want)
		}
	}
}

func TestAppendDecimal(t *testing.T) {
	tests := []struct {
		unit Unit
		ns   uint64
		want string
	}{
		{Nanoseconds, 0, "0"},
		{Nanoseconds, 18446744073709551615, "18446744073709551615"},
		{Microseconds, 1, "0.001"},
		{Microseconds, 300, "0.3"},
		{Microseconds, 10, "0.01"},
		{Microseconds, 10000, "10"},
		{Microseconds, 18446744073709551615, "18446744073709551.615"},
		{Milliseconds, 1, "0.000001"},
		{Milliseconds, 1020300, "1.0203"},
	}
	for _, tt := range tests {
		if got := string(tt.unit.appendDecimal(nil, tt.ns)); got != tt.want {
			t.Errorf("%d ns in %v: %s, want %s", tt.ns, tt.unit, got, tt.want)
		}
	}
}

// TestAppendSlots checks the layout of libbpf-tools for linear histograms, and ranges from 32 on.
func TestAppendSlots(t *testing.T) {
	h := record(New(Values), 0, 0, 2, 32, 33)
	text := string(h.AppendSlots(nil, "runqlen"))
	lines := strings.Split(text, "\n")
	want := []string{
		"     runqlen       : count    distribution",
		"        0          : 2        |****************************************|",
		"        1          : 0        |                                        |",
		"        2          : 1        |********************                    |",
	}
	if !slices.Equal(lines[:4], want) || len(lines) != 36 || lines[33] != "        32 -> 33   : 2        |****************************************|" ||
		!strings.HasPrefix(lines[34], "count 5, mean 13.4, ") {
		t.Errorf("text is %d lines:\n%s", len(lines), text)
	}
	if got := string(New(Values).AppendSlots(nil, "runqlen")); got != "count 0\n" {
		t.Errorf("text of an empty histogram is %q", got)
	}
}
