package ring

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Flags of bpf_ringbuf_output and of BPF_PROG_TEST_RUN.
const (
	noWakeup    = 1
	forceWakeup = 2
	runOnCPU    = 1
)

// sender sends events from the kernel: each run of its program is one.
type sender struct {
	events  *ebpf.Map
	program *ebpf.Program
}

// newSender makes a map and a program that sends what its context begins with, the
// time and the number of an event, with the flags that follow.
func newSender(t testing.TB, kind ebpf.MapType, entries uint32) *sender {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to load BPF programs")
	}
	_ = rlimit.RemoveMemlock()
	events, err := ebpf.NewMap(&ebpf.MapSpec{Type: kind, MaxEntries: entries})
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skipf("this kernel has no %s", kind)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { events.Close() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: output(events)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return &sender{events, program}
}

func output(events *ebpf.Map) asm.Instructions {
	all := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord), // time
		asm.StoreMem(asm.RFP, -16, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord), // number
		asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
	}
	data := asm.Instructions{asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -16)}
	if events.Type() == ebpf.RingBuf {
		all = append(append(all, data...),
			asm.LoadMapPtr(asm.R1, events.FD()),
			asm.Mov.Imm(asm.R3, 16),
			asm.LoadMem(asm.R4, asm.R6, 16, asm.DWord), // flags
			asm.FnRingbufOutput.Call())
	} else {
		all = append(append(all, data...),
			asm.Mov.Reg(asm.R4, asm.R2),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.LoadMapPtr(asm.R2, events.FD()),
			asm.LoadImm(asm.R3, 0xffffffff, asm.DWord), // BPF_F_CURRENT_CPU
			asm.Mov.Imm(asm.R5, 16),
			asm.FnPerfEventOutput.Call())
	}
	return append(all, asm.Return())
}

// send sends one event, from the CPU if that is not -1, and returns the helper's result.
func (s *sender) send(t testing.TB, at, n, flags uint64, cpu int) int32 {
	t.Helper()
	opts := ebpf.RunOptions{Context: [3]uint64{at, n, flags}}
	if cpu >= 0 {
		opts.Flags, opts.CPU = runOnCPU, uint32(cpu)
	}
	ret, err := s.program.Run(&opts)
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip("this kernel cannot run a raw tracepoint program for a test")
	}
	if err != nil {
		t.Fatal(err)
	}
	return int32(ret)
}

// got is what a Read returned, and when.
type got struct {
	number uint64
	at     time.Time
	err    error
}

// follow reads until the reader is closed, and sends what it got.
func follow(r Reader) <-chan got {
	c := make(chan got, 1<<16)
	go func() {
		defer close(c)
		for {
			data, err := r.Read()
			g := got{at: time.Now(), err: err}
			if err == nil {
				g.number = binary.NativeEndian.Uint64(data[8:])
			}
			c <- g
			if err != nil && !errors.Is(err, ErrIdle) {
				return
			}
		}
	}()
	return c
}

// next is what the reader returns next. It fails the test if the reader is never woken for it.
func next(t testing.TB, c <-chan got) got {
	t.Helper()
	select {
	case g := <-c:
		return g
	case <-time.After(time.Minute):
		t.Fatal("the reader does not return")
		return got{}
	}
}

func newReader(t testing.TB, s *sender) Reader {
	t.Helper()
	r, err := New(s.events, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// A lone event is read: one that wakes the reader, one that does not because it comes shortly
// after one that does, and one that does not although it should. TestEventsAreReadInTime checks
// how soon, with a clock that does not depend on the load of the machine.
func TestLoneEvents(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration // between the event that wakes and this one; 0 without that
		flags uint64
	}{
		{"woken for", 0, forceWakeup},
		{"behind one that wakes", time.Millisecond, noWakeup},
		{"at the end of that time", 9 * time.Millisecond, noWakeup},
		{"after it", 30 * time.Millisecond, noWakeup},
		{"never woken for", 0, noWakeup},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSender(t, ebpf.RingBuf, uint32(os.Getpagesize()))
			c := follow(newReader(t, s))
			var took []time.Duration
			for range 9 {
				if tt.after > 0 {
					s.send(t, 0, 1, forceWakeup, -1)
					time.Sleep(tt.after)
				}
				begin := time.Now()
				s.send(t, 0, 2, tt.flags, -1)
				g := next(t, c)
				for g.err != nil || g.number != 2 {
					g = next(t, c)
				}
				took = append(took, g.at.Sub(begin))
				if after := next(t, c); !errors.Is(after.err, ErrIdle) {
					t.Fatalf("the last event is followed by %+v", after)
				}
				time.Sleep(70 * time.Millisecond) // until the reader is at rest
			}
			t.Logf("read after %s (median), %s at most", median(took), took[len(took)-1])
		})
	}
}

func TestStopDrains(t *testing.T) {
	for _, kind := range []ebpf.MapType{ebpf.RingBuf, ebpf.PerfEventArray} {
		t.Run(kind.String(), func(t *testing.T) {
			entries := uint32(0)
			if kind == ebpf.RingBuf {
				entries = 1 << 16
			}
			s := newSender(t, kind, entries)
			r := newReader(t, s)
			const events = 1000
			for n := range uint64(events) {
				if ret := s.send(t, n, n, noWakeup, -1); ret != 0 {
					t.Fatalf("event %d does not fit: %d", n, ret)
				}
			}
			if err := r.Stop(); err != nil {
				t.Fatal(err)
			}
			read := uint64(0)
			for g := range follow(r) {
				switch {
				case g.err == nil && g.number == read:
					read++
				case g.err == nil:
					t.Fatalf("event %d instead of %d", g.number, read)
				case !errors.Is(g.err, ErrIdle) && !errors.Is(g.err, os.ErrClosed):
					t.Fatal(g.err)
				}
			}
			if read != events {
				t.Errorf("%d of %d events", read, events)
			}
			if _, err := r.Read(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// oneCPUEnv is set in the child process that TestPerfBuffersShareBytes runs on one CPU.
const oneCPUEnv = "CORESCOPE_ONE_CPU"

// The buffers of all possible CPUs have the size that was asked for, also in a process that
// may run on one CPU only.
func TestPerfBuffersShareBytes(t *testing.T) {
	s := newSender(t, ebpf.PerfEventArray, 0)
	const bytes = 4 << 20
	b, err := newPerfBuffers(s.events, bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	possible := ebpf.MustPossibleCPU()
	want := powerOfTwo(bytes / possible)
	for cpu, buf := range b.byCPU {
		if len(buf.data) != want {
			t.Errorf("on %d of %d CPUs: the buffer of CPU %d has %d bytes, want %d", runtime.NumCPU(), possible, cpu, len(buf.data), want)
		}
	}
	if len(b.byCPU) == 0 {
		t.Error("there are no buffers")
	}
	if os.Getenv(oneCPUEnv) == "" {
		rerunOnOneCPU(t)
	}
}

// rerunOnOneCPU runs the test in a process that may use one of this one's CPUs.
func rerunOnOneCPU(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &all)
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), oneCPUEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("on one CPU: %v: %s", err, out)
	}
}

// What has no room is refused by the helper, so that the program can count it, and
// what it accepts is read: nothing is in between.
func TestFullBuffer(t *testing.T) {
	for _, kind := range []ebpf.MapType{ebpf.RingBuf, ebpf.PerfEventArray} {
		t.Run(kind.String(), func(t *testing.T) {
			entries := uint32(0)
			if kind == ebpf.RingBuf {
				entries = uint32(os.Getpagesize())
			}
			s := newSender(t, kind, entries)
			r := newReader(t, s)
			sent, refused := 0, 0
			for n := range uint64(10000) {
				if s.send(t, n, n, noWakeup, -1) == 0 {
					sent++
				} else {
					refused++
				}
			}
			if err := r.Stop(); err != nil {
				t.Fatal(err)
			}
			read := 0
			for g := range follow(r) {
				if g.err == nil {
					read++
				}
			}
			if read != sent || refused == 0 {
				t.Errorf("%d read of %d that were accepted, %d refused", read, sent, refused)
			}
		})
	}
}

func TestPerfOrderAcrossCPUs(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("there is one CPU")
	}
	s := newSender(t, ebpf.PerfEventArray, 0)
	r := newReader(t, s)
	const events = 200
	for n := range uint64(events) {
		// Each pair is sent in the wrong order, from two CPUs.
		s.send(t, n^1, n^1, 0, int(n%2))
	}
	c := follow(r)
	for n := range uint64(events) {
		g := <-c
		for errors.Is(g.err, ErrIdle) {
			g = <-c
		}
		if g.err != nil || g.number != n {
			t.Fatalf("event %d: %+v", n, g)
		}
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestPerfLoneEvent(t *testing.T) {
	s := newSender(t, ebpf.PerfEventArray, 0)
	c := follow(newReader(t, s))
	var took []time.Duration
	for range 9 {
		begin := time.Now()
		s.send(t, 0, 1, 0, -1)
		g, idle := next(t, c), next(t, c)
		if g.err != nil || !errors.Is(idle.err, ErrIdle) {
			t.Fatalf("%+v, then %+v", g, idle)
		}
		took = append(took, g.at.Sub(begin))
	}
	if m := median(took); m < hold {
		t.Errorf("read after %s (median), before its turn", m)
	}
}

// Close ends a Read that waits.
func TestCloseEndsRead(t *testing.T) {
	for _, kind := range []ebpf.MapType{ebpf.RingBuf, ebpf.PerfEventArray} {
		entries := uint32(0)
		if kind == ebpf.RingBuf {
			entries = uint32(os.Getpagesize())
		}
		s := newSender(t, kind, entries)
		r := newReader(t, s)
		c := follow(r)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if g := <-c; !errors.Is(g.err, os.ErrClosed) {
			t.Errorf("%s: %v", kind, g.err)
		}
	}
}

func TestNewRefusesOtherMaps(t *testing.T) {
	s := newSender(t, ebpf.PerfEventArray, 0)
	if _, err := New(s.events, 0); err == nil {
		t.Error("a perf buffer of no bytes")
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := New(m, 4096); err == nil {
		t.Error("a reader of an array")
	}
}

// BenchmarkQuietReader measures what a reader at rest costs: CPU time by the second.
func BenchmarkQuietReader(b *testing.B) {
	s := newSender(b, ebpf.RingBuf, uint32(os.Getpagesize()))
	r := newReader(b, s)
	c := follow(r)
	time.Sleep(2 * lookRest)
	begin := cpuTime(b)
	const span = 2 * time.Second
	for b.Loop() {
		time.Sleep(span)
	}
	if err := r.Stop(); err != nil {
		b.Fatal(err)
	}
	<-c
	b.ReportMetric(float64((cpuTime(b)-begin).Microseconds())/(span.Seconds()*float64(b.N)), "CPU-us/s")
}

func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
