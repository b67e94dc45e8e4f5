package argdist

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// entries is the size of the maps of small.
const entries = 256

// small is the tool with maps for few counts.
func small() *tool.Tool {
	sizes := map[string]uint32{"table": entries, "hists": entries}
	return tool.Define(Tool.Spec, options{}, func(o *options, env *tool.Env) (tool.Source, error) {
		src, err := build(o, env)
		switch src := src.(type) {
		case *source.Table[key, counts, row]:
			src.MapEntries = sizes
		case *source.Hists[histKey, label]:
			src.MapEntries = sizes
		}
		return src, err
	})
}

// valueOf returns the i-th value from 16 on that has a slot of its own: 16 per power of two.
func valueOf(i int) uint64 { return uint64(16+i%16) << (i / 16) }

// TestManyKeys counts more values, in a single report at the end, than the map has entries. Whenever the map is
// half full, the test waits until it has been emptied.
func TestManyKeys(t *testing.T) {
	tooltest.Root(t)
	const n = 896
	lib := native.Open(t, "libmany.so", []string{"f"})
	for option, name := range map[string]string{"-C": "table", "-H": "hists"} {
		t.Run(name, func(t *testing.T) {
			args := []string{"-i", "600", "--pid", strconv.Itoa(os.Getpid()), option, "p:" + lib.Path + ":f(unsigned long a):unsigned long:a"}
			res := tooltest.JSON(t, small(), args, func() {
				for i := range n {
					if i%32 == 0 && !awaitSpace(t, name) {
						return
					}
					lib.Call("f", native.Call{Args: [7]uint64{valueOf(i)}})
				}
			})
			if lost := tooltest.Lost(res.Summary); lost != 0 {
				t.Errorf("%v lost: %v", lost, res.Summary)
			}
			if option == "-H" {
				checkValues(t, res.Histograms, n)
				return
			}
			seen := map[string]int{}
			for _, r := range res.Rows {
				seen[fmt.Sprint(r["args"])] += int(r.Num("count"))
			}
			if len(res.Rows) != n || len(seen) != n {
				t.Errorf("%d rows of %d values, want one of each of %d", len(res.Rows), len(seen), n)
			}
			for value, count := range seen {
				if count != 1 {
					t.Errorf("value %s: %d times", value, count)
				}
			}
		})
	}
}

// checkValues checks the histogram of the first n values, which has a bucket for each.
func checkValues(t *testing.T, histograms []tooltest.Row, n int) {
	t.Helper()
	if len(histograms) != 1 || int(histograms[0].Num("count")) != n {
		t.Fatalf("%v, want one histogram of %d values", histograms, n)
	}
	buckets, _ := histograms[0]["buckets"].([]any)
	if len(buckets) != n {
		t.Fatalf("%d buckets, want %d", len(buckets), n)
	}
	for i, b := range buckets {
		if bucket := tooltest.Row(b.(map[string]any)); bucket.Num("lo") != float64(valueOf(i)) || bucket.Num("count") != 1 {
			t.Errorf("%v, want one value from %d on", bucket, valueOf(i))
		}
	}
}

// awaitSpace waits while more than half of the map is in use, and reports whether it has been emptied.
func awaitSpace(t *testing.T, name string) bool {
	t.Helper()
	m := tooltest.OwnMap(t, name)
	defer m.Close()
	for over := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		used := 0
		var key, value []byte
		for it := m.Iterate(); it.Next(&key, &value); {
			used++
		}
		if used <= entries/2 {
			return true
		}
		if time.Now().After(over) {
			t.Errorf("map %s has %d of %d entries, and is not emptied", name, used, entries)
			return false
		}
	}
}
