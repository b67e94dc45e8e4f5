package unwind

import (
	"debug/elf"
	"os"
	"reflect"
	"runtime"
	"slices"
	"sort"
	"testing"
)

//go:noinline
func bare(n int) int { return n ^ 3 }

//go:noinline
func framed(n int) int {
	var a [64]int
	for i := range a {
		a[i] = bare(n + i)
	}
	return a[bare(n)&63]
}

// own returns the test program and its unwind table.
func own(t *testing.T) (*elf.File, []Row) {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	rows, err := goRows(path, f.Machine, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return f, rows
}

// rulesOf returns the rules of a function, starting with that of its first instruction.
func rulesOf(f *elf.File, rows []Row, function any) (all []Rule) {
	pc := reflect.ValueOf(function).Pointer()
	if f.Type == elf.ET_DYN {
		return nil
	}
	next := sort.Search(len(rows), func(i int) bool { return uint64(rows[i].PC) > uint64(pc) })
	name := runtime.FuncForPC(pc).Name()
	for i := next - 1; i < len(rows) && (i < next || runtime.FuncForPC(uintptr(rows[i].PC)).Name() == name); i++ {
		all = append(all, rows[i].Rule)
	}
	return all
}

// TestGoRules checks the rules of a function without a frame and of one with a large frame.
func TestGoRules(t *testing.T) {
	f, rows := own(t)
	g := &goFunctions{pushed: f.Machine == elf.EM_X86_64}
	if got := rulesOf(f, rows, bare); !slices.Equal(got, []Rule{g.rule(0)}) {
		t.Errorf("rules of a function without a frame are %x", got)
	}
	const minFrame = 64 * 8
	got := rulesOf(f, rows, framed)
	isLarge := func(r Rule) bool {
		return r&0x7f == Rule(BaseSP) && r&GoRule != 0 && uint16(r>>16) >= minFrame/wordSize
	}
	if len(got) < 3 || got[0] != g.rule(0) || !slices.ContainsFunc(got, isLarge) {
		t.Errorf("rules of a function with a frame of %d bytes are %x", minFrame, got)
	}
}

// TestGoSwitching checks the rules of a function that reads the clock on the stack of its thread: by the
// stack pointer until the prologue has set the frame pointer, and by the frame pointer at its calls.
func TestGoSwitching(t *testing.T) {
	f, rows := own(t)
	g := &goFunctions{pushed: f.Machine == elf.EM_X86_64}
	var got []Rule
	for _, r := range rows {
		if f := runtime.FuncForPC(uintptr(r.PC)); f != nil && f.Name() == "runtime.nanotime1" {
			got = append(got, r.Rule)
		}
	}
	sp := slices.IndexFunc(got, func(r Rule) bool { return r&0x7f == Rule(BaseSP) })
	fp := slices.IndexFunc(got, func(r Rule) bool { return r&0x7f == Rule(BaseFP) && r&GoRule != 0 })
	if sp < 0 || fp < sp {
		t.Errorf("rules of runtime.nanotime1 are %x, want one by the stack pointer and then one by the frame pointer", got)
	}
	if want := newRule(BaseFP, 16, -16, -8).markGo(); g.pushed && fp >= 0 && got[fp] != want {
		t.Errorf("rule by the frame pointer is %x, want %x", got[fp], want)
	}
}

// TestGoRows checks that nearly all code has a rule, and that there are rules for outermost
// functions and for the code that signal handlers return to.
func TestGoRows(t *testing.T) {
	_, rows := own(t)
	var without, ends, signals int
	for i, r := range rows[:len(rows)-1] {
		switch r.Rule {
		case 0:
			without += int(rows[i+1].PC - r.PC)
		case newRule(BaseSignal, 0, 0, 0):
			if f := runtime.FuncForPC(uintptr(r.PC + 1)); f == nil || f.Entry() != uintptr(r.PC+1) || f.Name() != "runtime.sigreturn__sigaction" {
				t.Errorf("signal rule at %x, want it one byte before runtime.sigreturn__sigaction", r.PC)
			}
			signals++
		case newRule(BaseEnd, 0, 0, 0):
			ends++
		}
	}
	returns := map[string]int{"amd64": 1}[runtime.GOARCH] // on other architectures handlers return to the vDSO
	all := int(rows[len(rows)-1].PC - rows[0].PC)
	if len(rows) < 1000 || without > all/100 || ends == 0 || signals != returns {
		t.Errorf("%d rows; %d of %d bytes have no rule; %d outermost functions; %d signal rules, want %d", len(rows), without, all, ends, signals, returns)
	}
	if !slices.IsSortedFunc(rows, func(a, b Row) int { return int(int64(a.PC) - int64(b.PC)) }) {
		t.Error("rows are not in order")
	}
}

// TestMerge merges Go functions with those of another language before, around and after them.
func TestMerge(t *testing.T) {
	c := []Row{{0, 0}, {0x100, 1}, {0x300, 2}, {0x900, 0}}
	golang := []Row{{0x200, 3}, {0x400, 4}, {0x800, 0}}
	if got, want := merge(c, golang), []Row{{0, 0}, {0x100, 1}, {0x200, 3}, {0x400, 4}, {0x800, 2}, {0x900, 0}}; !slices.Equal(got, want) {
		t.Errorf("rows are %v, want %v", got, want)
	}
	if got := merge(c, nil); !slices.Equal(got, c) {
		t.Errorf("rows are %v", got)
	}
}
