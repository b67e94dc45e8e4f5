package javagc

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

func self(more ...string) []string { return append(more, "--pid", fmt.Sprint(os.Getpid())) }

// poolArgs returns the eight arguments of a pool probe, in all forms: a register, a constant, a
// register, a word in memory (on x86 on the stack), a signed part of a register, a word in memory,
// one with an index, and an unsigned part of a register.
func poolArgs() string {
	if runtime.GOARCH == "arm64" {
		return "8@x0 -4@3 8@x1 4@[x3, 32] -4@w2 8@[x3] 8@[x3, x4, lsl 3] -2@w5"
	}
	return "8@%rdi -4@$3 8@%rsi 4@32(%rcx) -4@%edx 8@(%rcx) 8@8(%rcx,%r8,8) -2@%r9w"
}

// collector runs collect on one thread, as the collectors of Java do.
func collector(collect func()) func() {
	return func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		collect()
	}
}

func jvm(t testing.TB) *native.Library {
	t.Helper()
	full := "1@%dil"
	if runtime.GOARCH == "arm64" {
		full = "1@w0"
	}
	return native.Open(t, "libjvm.so", []string{"begin", "end", "pool_begin", "pool_end", "young_begin"},
		native.Probe{Function: "begin", Provider: "hotspot", Name: "gc__begin", Args: full, Semaphore: true},
		native.Probe{Function: "young_begin", Provider: "hotspot", Name: "gc__begin", Args: constant("0")},
		native.Probe{Function: "end", Provider: "hotspot", Name: "gc__end"},
		native.Probe{Function: "pool_begin", Provider: "hotspot", Name: "mem__pool__gc__begin", Args: poolArgs()},
		native.Probe{Function: "pool_end", Provider: "hotspot", Name: "mem__pool__gc__end", Args: poolArgs()},
	)
}

func constant(n string) string {
	if runtime.GOARCH == "arm64" {
		return "1@" + n
	}
	return "1@$" + n
}

// pool contains the arguments of a pool probe.
type pool struct {
	manager, name   *byte
	nameLen         uint32
	used, committed uint64
	max             int16
}

func (p *pool) call(lib *native.Library, function string, sleep time.Duration) {
	memory := &[6]uint64{0: p.used, 3: p.committed, 4: uint64(p.nameLen) | 0xdead<<32}
	index := uint64(3)
	if runtime.GOARCH == "amd64" {
		index = 2 // the index adds 8 bytes
	}
	lib.Call(function, native.Call{
		Args: [7]uint64{native.Pointer(p.manager), native.Pointer(p.name), math.MaxUint32 - 4, native.Pointer(memory),
			index, 0xabcd0000 | uint64(uint16(p.max))}, Sleep: sleep,
	})
	runtime.KeepAlive(memory)
}

// TestCollections does a full collection of two pools, and one of the young generation.
func TestCollections(t *testing.T) {
	lib := jvm(t)
	manager, eden, old := native.Text("abc and more"), native.Text("Eden"), native.Text("Old\xff")
	pools := []*pool{{manager, eden, 4, 1 << 33, 1 << 34, -1}, {manager, old, 4, 77, 88, 99}}
	res := tooltest.JSON(t, Tool, self(), collector(func() {
		// The begin of this pool and this pause was not observed.
		pools[0].call(lib, "pool_end", 0)
		lib.Call("end", native.Call{})
		lib.Call("begin", native.Call{Args: [7]uint64{0xff01}, Sleep: 5 * time.Millisecond})
		pools[0].call(lib, "pool_begin", 0)
		pools[1].call(lib, "pool_begin", 5*time.Millisecond)
		pools[0].used, pools[1].used = 5, 6
		pools[0].call(lib, "pool_end", 0)
		pools[1].call(lib, "pool_end", 0)
		lib.Call("end", native.Call{})
		lib.Call("young_begin", native.Call{Args: [7]uint64{1}})
		lib.Call("end", native.Call{})
		lib.Call("end", native.Call{})
	}))
	if n := res.Summary.Object("counters").Num("no_begin"); n != 3 {
		t.Errorf("%v ends without a begin, want those of one pool and two pauses", n)
	}
	type row struct {
		what, manager, pool          string
		full                         bool
		before, used, committed, max float64
		least                        time.Duration
	}
	want := []row{
		{"pool", "abc", "Eden", false, 1 << 33, 5, 1 << 34, -1, 5 * time.Millisecond},
		{"pool", "abc", "Old\xff", false, 77, 6, 88, 99, 5 * time.Millisecond},
		{"collection", "abc", "", true, 0, 0, 0, 0, 10 * time.Millisecond},
		{"collection", "", "", false, 0, 0, 0, 0, 0},
	}
	if len(res.Events) != len(want) {
		t.Fatalf("rows %v", res.Events)
	}
	for i, r := range res.Events {
		got := row{r.Str("what"), r.Str("manager"), r.Bytes(t, "pool"), r["full"] == true, r.Num("used_before_bytes"),
			r.Num("used_bytes"), want[i].committed, want[i].max, want[i].least}
		if got != want[i] || time.Duration(r.Num("delta_ns")) < want[i].least {
			t.Errorf("row %v, want %+v", r, want[i])
		}
	}
}

// TestTwoCollections has one pause with two collections, and a part of a pause without a start.
func TestTwoCollections(t *testing.T) {
	lib := jvm(t)
	const nap = 5 * time.Millisecond
	young, full := &pool{manager: native.Text("new"), name: native.Text("Eden"), nameLen: 4}, &pool{manager: native.Text("all"), name: native.Text("Eden"), nameLen: 4}
	start := time.Now()
	var took time.Duration
	res := tooltest.JSON(t, Tool, self("--filter", `what == "collection"`), collector(func() {
		start = time.Now()
		lib.Call("young_begin", native.Call{Sleep: nap})
		for _, p := range []*pool{young, full} {
			p.call(lib, "pool_begin", nap)
			p.call(lib, "pool_end", nap)
		}
		lib.Call("end", native.Call{})
		took = time.Since(start)
	}))
	if len(res.Events) != 2 || res.Events[0].Str("manager") != "new" || res.Events[1].Str("manager") != "all" {
		t.Fatalf("rows %v, want one partial and one full collection", res.Events)
	}
	first, second := time.Duration(res.Events[0].Num("delta_ns")), time.Duration(res.Events[1].Num("delta_ns"))
	if first < 2*nap || second < 3*nap || first+second > took {
		t.Errorf("collections took %v and %v, the pause %v", first, second, took)
	}
}

func TestIsFull(t *testing.T) {
	for manager, want := range map[string][2]bool{
		"MarkSweepCompact": {true, true}, "PS MarkSweep": {true, true}, "G1 Old Generation": {true, true},
		"Copy": {false, false}, "PS Scavenge": {false, false}, "G1 Young Generation": {false, false}, "": {false, true}, "other": {false, true},
	} {
		if got := [2]bool{isFull(manager, false), isFull(manager, true)}; got != want {
			t.Errorf("%q is full: %v, want %v", manager, got, want)
		}
	}
}

// TestExtraColumns checks the columns that are not displayed by default.
func TestExtraColumns(t *testing.T) {
	lib := jvm(t)
	p := &pool{native.Text("abc"), native.Text("Eden"), 4, 1, 1 << 34, -1}
	out := tooltest.Text(t, Tool, self("--output", "csv", "--columns", "manager,committed_bytes,max_bytes"), collector(func() {
		p.call(lib, "pool_begin", 0)
		p.call(lib, "pool_end", 0)
	}))
	if want := "manager,committed_bytes,max_bytes\nabc,17179869184,-1\n"; out != want {
		t.Errorf("CSV %q, want %q", out, want)
	}
}

func TestFilters(t *testing.T) {
	lib := jvm(t)
	eden, old := &pool{manager: native.Text("abc"), name: native.Text("Eden"), nameLen: 4}, &pool{manager: native.Text("abd"), name: native.Text("Old"), nameLen: 3}
	collect := collector(func() {
		eden.call(lib, "pool_begin", 0)
		old.call(lib, "pool_begin", 400*time.Millisecond)
		old.call(lib, "pool_end", 0)
		eden.call(lib, "pool_end", 0)
		lib.Call("young_begin", native.Call{})
		lib.Call("end", native.Call{})
	})
	for _, tt := range []struct {
		args []string
		rows int
	}{
		{nil, 3}, {[]string{"-t", "400000"}, 2}, {[]string{"-M", "400"}, 2}, {[]string{"-M", "60000"}, 0},
		{[]string{"-F", "Ede"}, 1}, {[]string{"-F", "ab"}, 2}, {[]string{"--filter", `what == "collection"`}, 1},
	} {
		if res := tooltest.JSON(t, Tool, self(tt.args...), collect); len(res.Events) != tt.rows {
			t.Errorf("%q: %d rows, want %d: %v", tt.args, len(res.Events), tt.rows, res.Events)
		}
	}
}

// TestManyPools uses more pools at once than the map can hold, which is reported.
func TestManyPools(t *testing.T) {
	lib := jvm(t)
	var pools []*pool
	for range 18 {
		pools = append(pools, &pool{manager: native.Text("abc"), name: native.Text("Some"), nameLen: 4})
	}
	res := tooltest.JSON(t, Tool, self(), collector(func() {
		for _, function := range []string{"pool_begin", "pool_end"} {
			for _, p := range pools {
				p.call(lib, function, 0)
			}
		}
	}))
	lost, noBegin := res.Summary.Object("reasons").Num("map_full"), res.Summary.Object("counters").Num("no_begin")
	if len(res.Events) != 16 || lost != 2 || noBegin != 2 {
		t.Errorf("%d rows of 18 pools, %v lost, %v without a begin", len(res.Events), lost, noBegin)
	}
}

func TestSemaphore(t *testing.T) {
	lib := jvm(t)
	tooltest.JSON(t, Tool, self(), func() {
		if n := lib.Semaphore(0); n != 1 {
			t.Errorf("semaphore is %d while the tool runs", n)
		}
	})
	if n := lib.Semaphore(0); n != 0 {
		t.Errorf("semaphore is %d after the end of the tool", n)
	}
}

func TestText(t *testing.T) {
	lib := jvm(t)
	out := tooltest.Text(t, Tool, self(), collector(func() {
		lib.Call("young_begin", native.Call{})
		lib.Call("end", native.Call{})
	}))
	head, row, _ := strings.Cut(out, "\n")
	if strings.Join(strings.Fields(head), " ") != "TIME CPU PID GC TIME WHAT FULL MANAGER POOL" || !strings.HasSuffix(strings.TrimSpace(row), "-") || !strings.Contains(row, "collection false") {
		t.Errorf("text is %q", out)
	}
}
