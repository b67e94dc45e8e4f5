package biolatency

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestHeatMap compares the heat map of one disk with the number of writes. With an interval that is
// shorter than the load, the writes are in several columns.
func TestHeatMap(t *testing.T) {
	tooltest.AnyAttachType(t)
	l := newLoop(t, 0)
	const n = 200
	for _, format := range []string{"svg", "html"} {
		text := tooltest.TextUndisturbed(t, Tool, []string{"-d", l.name, "-D", "--operations", "--output", format, "1ms"}, func() {
			writeBlocks(t, l.dev, n)
		})
		got, columns := 0, map[string]bool{}
		for _, m := range regexp.MustCompile(`<title>(\S+) to \S+, \S+ to \S+: (\d+) of \d+</title>`).FindAllStringSubmatch(text, -1) {
			count, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			got += count
			columns[m[1]] = true
		}
		if got != n || !strings.Contains(text, "disk = "+l.name+", operation = write: 200 values") {
			t.Errorf("%s: %d values in cells, want %d: %s", format, got, n, text)
		}
		if len(columns) == 0 {
			t.Errorf("%s: no column has a value", format)
		}
	}
}

// TestHeatMapIntervals checks that a run of three intervals has three columns.
func TestHeatMapIntervals(t *testing.T) {
	tooltest.AnyAttachType(t)
	text := tooltest.Text(t, Tool, []string{"--output", "html", "50ms", "3"}, nil)
	times := regexp.MustCompile(`data-times="([^"]*)"`).FindStringSubmatch(text)
	if len(times) != 2 || len(strings.Fields(times[1])) != 3 {
		t.Errorf("columns are %q, want 3", times)
	}
}
