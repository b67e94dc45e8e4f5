package probe

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Offsets of words in the map of a slow program.
const (
	slowBegun = 8 * iota
	slowEnded
	slowStop
	slowData
)

// slow returns a program that sets slowBegun, copies memory until slowStop is set, but only for
// some seconds, and sets slowEnded.
func slow(m *ebpf.Map) asm.Instructions {
	ins := asm.Instructions{
		asm.LoadMapValue(asm.R6, m.FD(), 0),
		asm.Mov.Imm(asm.R8, 1),
		asm.StoreMem(asm.R6, slowBegun, asm.R8, asm.DWord),
		asm.Mov.Imm(asm.R7, 3000), // the verifier allows 8,192 pending branches
		asm.LoadMem(asm.R1, asm.R6, slowStop, asm.DWord).WithSymbol("next"),
		asm.JNE.Imm(asm.R1, 0, "end"),
	}
	for range 4 {
		ins = append(ins,
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Add.Imm(asm.R1, slowData),
			asm.Mov.Imm(asm.R2, 1<<20),
			asm.Mov.Reg(asm.R3, asm.R1),
			asm.FnProbeReadKernel.Call(),
		)
	}
	return append(ins,
		asm.Sub.Imm(asm.R7, 1),
		asm.JNE.Imm(asm.R7, 0, "next"),
		asm.StoreMem(asm.R6, slowEnded, asm.R8, asm.DWord).WithSymbol("end"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
}

// words is the memory of a mapped array map.
type words struct{ *ebpf.Memory }

func (w words) isSet(t *testing.T, at int64) bool {
	t.Helper()
	var word [8]byte
	if _, err := w.ReadAt(word[:], at); err != nil {
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint64(word[:]) == 1
}

// TestAwaitGracePeriod checks that a program that runs when the wait begins has finished when the
// wait returns, however long it takes.
func TestAwaitGracePeriod(t *testing.T) {
	objects := newObject().load(t, Options{})
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: tag(), Type: ebpf.Array, KeySize: 4, ValueSize: slowData + 1<<20, MaxEntries: 1, Flags: 1 << 10, // BPF_F_MMAPABLE
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	memory, err := m.Memory()
	if err != nil {
		t.Fatal(err)
	}
	state := words{memory}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: tag(), Type: ebpf.RawTracepoint, License: "GPL", Instructions: slow(m)})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := prog.Run(&ebpf.RunOptions{})
		ended <- err
	}()
	for !state.isSet(t, slowBegun) {
		select {
		case err := <-ended:
			if errors.Is(err, ebpf.ErrNotSupported) {
				t.Skipf("BPF_PROG_TEST_RUN of raw tracepoint programs is not supported: %v", err)
			}
			t.Fatalf("the program ended without setting slowBegun: %v", err)
		default:
			runtime.Gosched()
		}
	}
	waited := make(chan error, 1)
	go func() { waited <- objects.AwaitGracePeriod() }()
	select {
	case err = <-waited:
	case <-time.After(300 * time.Millisecond): // longer than a wait for a fixed time would take
		if _, err := memory.WriteAt([]byte{1}, slowStop); err != nil {
			t.Fatal(err)
		}
		err = <-waited
	}
	if err != nil {
		t.Fatal(err)
	}
	if !state.isSet(t, slowEnded) {
		t.Error("AwaitGracePeriod returned while the program was running")
		memory.WriteAt([]byte{1}, slowStop)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
