package ppchcalls

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestNeeds checks that the tool names what this kernel lacks, or counts calls.
func TestNeeds(t *testing.T) {
	tooltest.Root(t)
	if tooltest.HasTracepoint(t, "hcall_exit") {
		res := tooltest.JSON(t, Tool, []string{"-L"}, func() { time.Sleep(time.Second) }) // the timer makes calls
		if len(res.Rows) == 0 || res.Rows[0].Num("count") == 0 {
			t.Errorf("no calls: %v", res.Summary)
		}
		return
	}
	for _, args := range [][]string{nil, {"-L"}, {"-P", "-x"}} {
		tooltest.Fails(t, Tool, args, tool.ExitUnsupported, "PowerPC")
	}
}

// entry mirrors struct table_entry.
type entry struct {
	Opcode uint64
	PID    uint32
	Comm   [16]byte
	Pad    uint32
	Epoch  uint32
	CPU    uint32
}

// values mirrors struct table_value.
type values struct{ Count, Errors, Timed, TotalNs, MaxNs, MaxInverseNs uint64 }

// table returns the sums of the table by call and process.
func table(t *testing.T, p *tooltest.Programs) map[entry]values {
	t.Helper()
	out := map[entry]values{}
	var k entry
	var v values
	all := p.Maps["table"].Iterate()
	for all.Next(&k, &v) {
		k.CPU, k.Comm = 0, [16]byte{}
		out[k] = v
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

const (
	hEnter, hProd = 0x08, 0xe8
	parameter     = -4 // H_PARAMETER
)

// TestCalls runs the programs with BPF_PROG_TEST_RUN, with one call nested in another.
func TestCalls(t *testing.T) {
	tooltest.AnyAttachType(t)
	tooltest.PinThread(t) // the calls belong to a CPU
	p := tooltest.LoadPrograms(t, loadBpf, map[string]any{"want_latency": true}, "entry__raw", "exit__raw")
	failed := int64(parameter)
	for range 3 {
		p.Run("entry__raw", hEnter, 0)
		p.Run("entry__raw", hProd, 0)
		p.Run("exit__raw", hProd, 0, 0)
		p.Run("exit__raw", hEnter, uint64(failed), 0)
	}
	p.Run("exit__raw", hProd, 0, 0) // its entry was not observed
	got := table(t, p)
	enter, prod := got[entry{Opcode: hEnter}], got[entry{Opcode: hProd}]
	if len(got) != 2 || enter.Count != 3 || enter.Errors != 3 || enter.Timed != 3 || prod.Count != 4 || prod.Errors != 0 || prod.Timed != 3 {
		t.Errorf("%+v", got)
	}
	for _, v := range got {
		shortest, mean := math.MaxUint64-v.MaxInverseNs, v.TotalNs/v.Timed
		if shortest == 0 || shortest > mean || mean > v.MaxNs || v.TotalNs < v.MaxNs {
			t.Errorf("%d to %d ns, in total %d", shortest, v.MaxNs, v.TotalNs)
		}
	}
	if enter.TotalNs <= prod.TotalNs {
		t.Errorf("the calls took %d ns, those within them %d ns", enter.TotalNs, prod.TotalNs)
	}
	if n := p.Counter("no_entry"); n != 1 {
		t.Errorf("%d calls without entry, want 1", n)
	}
}

// TestFilters counts only failures, one result, and one call, by process.
func TestFilters(t *testing.T) {
	tooltest.AnyAttachType(t)
	for _, tc := range []struct {
		set  map[string]any
		want uint64
	}{
		{nil, 4},
		{map[string]any{"targ_failed": true}, 2},
		{map[string]any{"targ_error": uint64(4)}, 1},
		{map[string]any{"targ_by_opcode": true, "targ_opcode": uint64(hProd)}, 1},
	} {
		set := map[string]any{"by_pid": true}
		for name, v := range tc.set {
			set[name] = v
		}
		p := tooltest.LoadPrograms(t, loadBpf, set, "exit__raw")
		for opcode, result := range map[uint64]int64{hEnter: parameter, hProd: -1, 0x18: 0, 0xe4: 9900} {
			p.Run("exit__raw", opcode, uint64(result), 0)
		}
		var n uint64
		for k, v := range table(t, p) {
			n += v.Count
			if int(k.PID) != os.Getpid() || k.Opcode != 0 {
				t.Errorf("%+v: row of %+v", tc.set, k)
			}
		}
		if n != tc.want {
			t.Errorf("%+v: %d calls, want %d", tc.set, n, tc.want)
		}
	}
}

func TestNames(t *testing.T) {
	calls := parse(opcodes, 16)
	for text, want := range map[string]uint64{"H_ENTER": hEnter, "h_prod": hProd, "prod": hProd, "0xe8": hProd, "H_GUEST_DELETE": 0x488} {
		if n, err := calls.number(text); err != nil || n != want {
			t.Errorf("%s is %#x, want %#x: %v", text, n, want, err)
		}
	}
	if calls.name(hProd) != "H_PROD" || calls.name(0x1234) != "[0x1234]" {
		t.Errorf("%s, %s", calls.name(hProd), calls.name(0x1234))
	}
	if n, err := parse(results, 10).number("H_PARAMETER"); err != nil || n != -parameter {
		t.Errorf("H_PARAMETER is %d: %v", n, err)
	}
	all := calls.all()
	if out := tooltest.Text(t, Tool, []string{"--list"}, nil); out != strings.Join(all, "\n")+"\n" || len(slices.Compact(all)) != len(strings.Fields(opcodes))/2 {
		t.Errorf("--list prints %d bytes for %d names", len(out), len(all))
	}
	for _, args := range [][]string{{"--hcall", "H_NOSUCH"}, {"-e", "H_NOSUCH"}, {"-e", "0"}} {
		tooltest.Fails(t, Tool, args, tool.ExitUsage, args[1])
	}
}

// TestRow checks what is computed from the counts.
func TestRow(t *testing.T) {
	var r row
	o := &options{Milliseconds: true}
	o.fill(&r, &counts{Count: 5, Errors: 1, Timed: 4, TotalNs: 8_000_000, MaxNs: 5_000_000, MaxInverseNs: source.Max(math.MaxUint64 - 1_000_000)}, 0)
	if r.Min.Micros != 1_000_000 || r.Max.Micros != 5_000_000 || r.Average.Micros != 2_000_000 || r.Total.Micros != 8_000_000 || r.Count != 5 || r.Errors != 1 {
		t.Errorf("%+v", r)
	}
	if text := string(r.Average.AppendText(nil)); text != "2.000" {
		t.Errorf("%s ms, want 2.000", text)
	}
}
