package runqlat

import (
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/value"
)

// counting is the object with a program that counts its first argument as a value of the current task.
func counting(which ...tool.Variants) (*ebpf.CollectionSpec, error) {
	spec, err := loadBpf(which...)
	if err != nil {
		return nil, err
	}
	p := spec.Programs["queue__raw__wakeup"]
	function := functionOf(spec.Programs["queue__raw__switch"].Instructions, "hist_count_task")
	first := asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord).WithSymbol(p.Instructions[0].Symbol()).WithSource(p.Instructions[0].Source())
	main := asm.Instructions{
		btf.WithFuncMetadata(first, btf.FuncMetadata(&p.Instructions[0])),
		asm.FnGetCurrentTask.Call(),
		asm.Mov.Reg(asm.R3, asm.R0),
		asm.Mov.Imm(asm.R0, 0),
	}
	const keyBytes = int(unsafe.Sizeof(histKey{}))
	for at := -keyBytes; at < 0; at += 8 {
		main = append(main, asm.StoreMem(asm.RFP, int16(at), asm.R0, asm.DWord))
	}
	p.Instructions = slices.Concat(main, asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, int32(-keyBytes)),
		asm.Mov.Reg(asm.R2, asm.R6),
		asm.Mov.Imm(asm.R4, 1), // once
		asm.Call.Label("hist_count_task"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}, function)
	return spec, nil
}

// functionOf returns the instructions of a BPF-to-BPF function.
func functionOf(program asm.Instructions, name string) asm.Instructions {
	start := slices.IndexFunc(program, func(i asm.Instruction) bool { return i.Symbol() == name })
	body := program[start:]
	if end := slices.IndexFunc(body[1:], func(i asm.Instruction) bool { return i.Symbol() != "" }); end >= 0 {
		body = body[:end+1]
	}
	return body
}

// valuesAtBounds returns values at all bounds of buckets, next to them, and 2^k s.
func valuesAtBounds(u histogram.Unit) []uint64 {
	all := []uint64{0, 1, math.MaxUint64}
	for slot := range histogram.Slots {
		h := histogram.NewExponential(u)
		h.Add(slot, histogram.Slot{Count: 1})
		lo := h.Buckets()[0].Lo
		all = append(all, lo-1, lo, lo+1)
	}
	for ns := uint64(1953125); ns < 1<<62; ns *= 2 {
		all = append(all, ns-1, ns, ns+1)
	}
	return all
}

// TestExponentialSlots counts values with BPF_PROG_TEST_RUN, and compares each slot with the definition:
// package histogram is compared with it in exact integers.
func TestExponentialSlots(t *testing.T) {
	for _, u := range []histogram.Unit{histogram.Microseconds, histogram.Kilobytes} {
		t.Run(u.String(), func(t *testing.T) {
			set := u.ExponentialVariables()
			set["hist_plain"] = true
			p := tooltest.LoadPrograms(t, counting, set, "queue__raw__wakeup")
			r := rand.New(rand.NewPCG(1, 2))
			values := valuesAtBounds(u)
			for range 20_000 {
				values = append(values, r.Uint64()>>r.IntN(64))
			}
			want := histogram.NewExponential(u)
			for _, v := range values {
				p.Run("queue__raw__wakeup", v)
				want.Add(want.SlotOf(v), histogram.Slot{Count: 1, Sum: v, Min: v, Max: v})
			}
			got := histogram.NewExponential(u)
			var cpus []struct {
				Slots [histogram.Slots]histogram.Slot
			}
			if err := p.Maps["hists_plain"].Lookup(uint32(0), &cpus); err != nil {
				t.Fatal(err)
			}
			for _, cpu := range cpus {
				for nr, s := range cpu.Slots {
					got.Add(nr, s)
				}
			}
			if g, w := got.Exponential(), want.Exponential(); !reflect.DeepEqual(g.Buckets, w.Buckets) || g.Zero != w.Zero || g.Count != uint64(len(values)) {
				t.Errorf("%d values in buckets %v, want %d in %v", g.Count, g.Buckets, len(values), w.Buckets)
			}
			if !slices.Equal(got.Buckets(), want.Buckets()) {
				t.Errorf("buckets %v, want %v", got.Buckets(), want.Buckets())
			}
			checkExemplars(t, p, want)
		})
	}
}

// checkExemplars looks for one exemplar per slot, of this process.
func checkExemplars(t *testing.T, p *tooltest.Programs, want *histogram.Histogram) {
	t.Helper()
	type key struct {
		Key   histKey
		Slot  uint16
		Epoch uint8
		_     uint8
		CPU   uint32
	}
	type exemplar struct {
		TimeNs, Value, CgroupID uint64
		PID, TID                uint32
		Comm                    value.Comm
	}
	pidns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	isInitial := pidns == "pid:[4026531836]" // PROC_PID_INIT_INO: exemplars have IDs of that namespace
	n := 0
	it := p.Maps["hist_exemplars"].Iterate()
	var k key
	var e exemplar
	for it.Next(&k, &e) {
		n++
		if want.SlotOf(e.Value) != int(k.Slot) || k.Key != (histKey{}) || k.Epoch != 0 || k.CPU != 0 {
			t.Errorf("exemplar %d of slot %d has the key %v", e.Value, k.Slot, k)
		}
		if own := os.Getpid(); isInitial && int(e.PID) != own || e.TID == 0 || e.TimeNs == 0 || e.Comm == (value.Comm{}) {
			t.Errorf("exemplar of process %d, want %d: %+v", e.PID, own, e)
		}
	}
	if err := it.Err(); err != nil || n != len(want.Buckets()) {
		t.Errorf("%d exemplars, want %d: %v", n, len(want.Buckets()), err)
	}
}

// TestExported makes two threads compete for a CPU, and compares the number and the sum of the exported
// waits with the kernel's counters.
func TestExported(t *testing.T) {
	cpu := schedtest.CPUs(t)[0]
	both := []*schedtest.Worker{schedtest.Start(t, cpu, nil), schedtest.Start(t, cpu, nil)}
	want := make([]schedtest.Facts, 2)
	args := []string{"-L", "--tid", strconv.Itoa(both[0].PID), "--tid", strconv.Itoa(both[1].PID)}
	run := tooltest.Export(t, Tool, args, func() {
		for i, w := range both {
			want[i] = w.Facts(t)
			w.Begin(t, "spin", 300)
		}
		for i, w := range both {
			w.End(t)
			want[i] = w.Facts(t).Since(want[i])
		}
	})
	var counted, all uint64
	for i, w := range both {
		all += want[i].Woken + want[i].Preempted
		for _, h := range run.Histograms {
			if h.Key["tid"] != strconv.Itoa(w.PID) {
				continue
			}
			e := h.Exponential
			counted += e.Count
			t.Logf("thread %d: %d waits of %.6f s in buckets %v, the kernel has %d of %v", w.PID, e.Count, e.Sum, e.Buckets, want[i].Woken+want[i].Preempted, want[i].Wait)
			h.CheckBuckets(t)
			h.CheckTask(t, w.PID)
			for _, x := range h.Exemplars {
				if strconv.Itoa(int(x.TID)) != h.Key["tid"] || x.Comm.String() != h.Key["comm"] {
					t.Errorf("exemplar %+v of %v", x, h.Key)
				}
			}
		}
	}
	if lost := run.Summary.Reasons["unobserved"]; counted > all || counted+lost < all {
		t.Errorf("%d waits and %d unobserved, the kernel has %d", counted, lost, all)
	}
}
