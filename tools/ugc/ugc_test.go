package ugc

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/languagetest"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

func self(more ...string) []string { return append(more, "--pid", fmt.Sprint(os.Getpid())) }

func on(f func()) func() {
	return func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f()
	}
}

const nap = 5 * time.Millisecond

// TestProbes makes two collections of each language, and ends one that was not begun.
func TestProbes(t *testing.T) {
	for name, tt := range map[string]struct {
		begin, end string
		beginArg   uint64
		endArg     uint64
		want       string
	}{
		"java":    {"hotspot:gc__begin", "hotspot:gc__end", 1, 0, "GC of the whole heap"},
		"python":  {"python:gc__start", "python:gc__done", 2, 77, "gen 2 GC collected 77 objects"},
		"ruby":    {"ruby:gc__mark__begin", "ruby:gc__mark__end", 0, 0, "GC mark stage"},
		"ruby sw": {"ruby:gc__sweep__begin", "ruby:gc__sweep__end", 0, 0, "GC sweep stage"},
	} {
		t.Run(name, func(t *testing.T) {
			of, _, _ := strings.Cut(name, " ")
			lib := languagetest.Open(t, of, tt.begin, tt.end)
			res := tooltest.JSON(t, Tool, self(), on(func() {
				lib.Call(tt.end, native.Call{})
				for range 2 {
					lib.Call(tt.begin, native.Call{Args: [7]uint64{tt.beginArg}, Sleep: nap})
					lib.Call(tt.end, native.Call{Args: [7]uint64{tt.endArg}})
				}
				lib.Call(tt.begin, native.Call{})
			}))
			for _, r := range res.Events {
				if r.Str("description") != tt.want || r.Str("language") != of || r.Num("delta_ns") < float64(nap) || r.Num("delta_ns") > 1e10 {
					t.Errorf("row %v, want %q of at least %v", r, tt.want, nap)
				}
				if (of == "python") != r.Has("collected") || of == "python" && (r.Num("collected") != 77 || r.Num("generation") != 2) {
					t.Errorf("row %v", r)
				}
			}
			counters := res.Summary.Object("counters")
			if len(res.Events) != 2 || counters.Num("unseen_calls") != 1 || counters.Num("no_return") != 1 {
				t.Errorf("%d rows, counters %v, want 2 rows, 1 unseen and 1 that has not ended", len(res.Events), counters)
			}
		})
	}
}

const collectGarbage = "_ZN2v88internal4Heap14CollectGarbageENS0_15AllocationSpaceENS0_23GarbageCollectionReasonENS_15GCCallbackFlagsE"

const (
	scavenge    = "_ZN2v88internal4Heap8ScavengeEv"
	markCompact = "_ZN2v88internal4Heap11MarkCompactEv"
)

// TestNodeFunction calls V8's function, also from within itself.
func TestNodeFunction(t *testing.T) {
	lib := native.Open(t, languagetest.File("node"), []string{collectGarbage, scavenge, markCompact})
	res := tooltest.JSON(t, Tool, self("-l", "node"), on(func() {
		lib.Call(collectGarbage, native.Call{Inner: scavenge, Sleep: nap})
		lib.Call(collectGarbage, native.Call{Inner: markCompact})
		lib.Call(collectGarbage, native.Call{Inner: collectGarbage})
		lib.Call(scavenge, native.Call{})
	}))
	if len(res.Events) != 3 || res.Events[0].Str("description") != "GC young" || res.Events[0].Num("delta_ns") < float64(nap) ||
		res.Events[1].Str("description") != "GC full" || res.Events[2].Str("description") != "GC" {
		t.Errorf("rows %v, want a young, a full and an unknown collection", res.Events)
	}
}

// TestFilters selects by time and description.
func TestFilters(t *testing.T) {
	lib := languagetest.Open(t, "python", "python:gc__start", "python:gc__done")
	for _, tt := range []struct {
		args []string
		rows int
	}{{[]string{"-M", "100"}, 1}, {[]string{"-F", "gen 1"}, 1}, {[]string{"-F", "gen"}, 2}, {[]string{"-M", "60000"}, 0}} {
		res := tooltest.JSON(t, Tool, self(tt.args...), on(func() {
			for generation, sleep := range []time.Duration{0, 200 * time.Millisecond} {
				lib.Call("python:gc__start", native.Call{Args: [7]uint64{uint64(generation)}, Sleep: sleep})
				lib.Call("python:gc__done", native.Call{})
			}
		}))
		if len(res.Events) != tt.rows {
			t.Errorf("%q: rows %v, want %d", tt.args, res.Events, tt.rows)
		}
	}
}

// TestText checks the header of BCC, with both units.
func TestText(t *testing.T) {
	lib := languagetest.Open(t, "ruby", "ruby:gc__mark__begin", "ruby:gc__mark__end")
	for _, unit := range []string{"us", "ms"} {
		out := tooltest.Text(t, Tool, self(map[string][]string{"ms": {"-m"}}[unit]...), on(func() {
			lib.Call("ruby:gc__mark__begin", native.Call{})
			lib.Call("ruby:gc__mark__end", native.Call{})
		}))
		head, row, _ := strings.Cut(out, "\n")
		if strings.Join(strings.Fields(head), " ") != "START TIME ("+unit+") DESCRIPTION" || !strings.HasSuffix(strings.TrimSpace(row), "GC mark stage") {
			t.Errorf("text is %q", out)
		}
	}
}

// TestPython compares with Python's callbacks for collections.
func TestPython(t *testing.T) {
	path := languagetest.Interpreter(t, "python:gc__start", "/usr/bin/python3", "python3")
	res, lines := languagetest.Run(t, Tool, nil, path, "-c", `
import gc
all = []
def collected(phase, info):
    if phase == "stop": all.append((info["generation"], info["collected"] + info["uncollectable"]))
gc.disable()
gc.callbacks.append(collected)
print("ready", flush=True); input()
for generation in 0, 1, 2, 2:
    cycle = []; cycle.append(cycle); del cycle
    gc.collect(generation)
gc.callbacks.clear()
for c in all: print(*c, flush=True)`)
	var got []string
	for _, r := range res.Events {
		got = append(got, fmt.Sprint(r.Num("generation"), " ", r.Num("collected")))
	}
	if len(lines) != 4 || len(got) < 4 || !slices.Equal(got[:4], lines) { // the end of Python collects too
		t.Errorf("collections %q, Python has %q", got, lines)
	}
}

// TestNode compares with the entries of Node's performance observer.
func TestNode(t *testing.T) {
	path, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("Node.js is not installed: %v", err)
	}
	out, err := exec.Command(path, "-e", "console.log(require('fs').readFileSync(process.execPath).includes('"+collectGarbage+"'))").Output()
	if err != nil || strings.TrimSpace(string(out)) != "true" {
		t.Skipf("%s has no symbol of Heap::CollectGarbage: %s, %v", path, out, err)
	}
	res, lines := languagetest.Run(t, Tool, nil, path, "--expose-gc", "-e", `
process.stdin.once('data', () => {
	let entries = 0
	const o = new (require('perf_hooks').PerformanceObserver)(list => { entries += list.getEntries().length })
	o.observe({entryTypes: ['gc']})
	for (let i = 0; i < 5; i++) gc()
	setTimeout(() => { console.log(entries); process.exit() }, 100)
})
console.log('ready')`)
	if len(lines) != 1 {
		t.Fatalf("Node prints %q", lines)
	}
	entries, err := strconv.Atoi(lines[0])
	full := len(res.Where(func(r tooltest.Row) bool { return r.Str("description") == "GC full" }))
	if err != nil || entries < 5 || len(res.Events) < entries || full < 5 {
		t.Errorf("%d collections, %d of them full; Node counts %q, at least 5 full", len(res.Events), full, lines)
	}
}
