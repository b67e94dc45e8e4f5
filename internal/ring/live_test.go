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

// sender sends events from the kernel: each run of its program sends one event.
type sender struct {
	events  *ebpf.Map
	program *ebpf.Program
}

// newSender creates a map and a program. The program's context consists of the time and the number
// of an event, which it sends, and flags for sending.
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

// send sends one event, from a CPU unless cpu is -1, and returns the result of the helper.
func (s *sender) send(t testing.TB, at, n, flags uint64, cpu int) int32 {
	t.Helper()
	opts := ebpf.RunOptions{Context: [3]uint64{at, n, flags}}
	if cpu >= 0 {
		opts.Flags, opts.CPU = runOnCPU, uint32(cpu)
	}
	ret, err := s.program.Run(&opts)
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip("BPF_PROG_TEST_RUN of raw tracepoint programs is not supported by this kernel")
	}
	if err != nil {
		t.Fatal(err)
	}
	return int32(ret)
}

// result is the result of a Read and its time.
type result struct {
	number uint64
	at     time.Time
	err    error
}

// follow reads until the reader is closed, and sends the results to the channel.
func follow(r Reader) <-chan result {
	c := make(chan result, 1<<16)
	go func() {
		defer close(c)
		for {
			data, err := r.Read()
			g := result{at: time.Now(), err: err}
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

// next returns the next result. It fails the test after a minute without one.
func next(t testing.TB, c <-chan result) result {
	t.Helper()
	select {
	case g := <-c:
		return g
	case <-time.After(time.Minute):
		t.Fatal("Read did not return within a minute")
		return result{}
	}
}

func newReader(t testing.TB, s *sender) Reader {
	t.Helper()
	r, err := New(s.events, 1<<16, Delay)
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

// TestLoneEvents checks that a single event is read: one that wakes the reader, one that does not
// because it follows shortly after one that does, and one that does not although it should.
// TestReadLatency checks the latency, with a clock that does not depend on the load of the machine.
func TestLoneEvents(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration // since an event that wakes the reader; 0 without such an event
		flags uint64
	}{
		{"wake-up", 0, forceWakeup},
		{"1 ms after a wake-up", time.Millisecond, noWakeup},
		{"9 ms after a wake-up", 9 * time.Millisecond, noWakeup},
		{"30 ms after a wake-up", 30 * time.Millisecond, noWakeup},
		{"no wake-up", 0, noWakeup},
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
					t.Fatalf("result after the last event is %+v, want ErrIdle", after)
				}
				time.Sleep(70 * time.Millisecond) // until the reader is idle
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
					t.Fatalf("read event %d, want %d", g.number, read)
				case !errors.Is(g.err, ErrIdle) && !errors.Is(g.err, os.ErrClosed):
					t.Fatal(g.err)
				}
			}
			if read != events {
				t.Errorf("read %d of %d events", read, events)
			}
			if _, err := r.Read(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("Read after the end: %v, want %v", err, os.ErrClosed)
			}
		})
	}
}

// oneCPUEnv is set in the child process that TestPerfBuffersShareBytes runs on one CPU.
const oneCPUEnv = "CORESCOPE_ONE_CPU"

// TestPerfBuffersShareBytes checks that the buffers of all possible CPUs have the requested size,
// also in a process that may run on one CPU only.
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
		t.Error("no buffers were opened")
	}
	if os.Getenv(oneCPUEnv) == "" {
		rerunOnOneCPU(t)
	}
}

// rerunOnOneCPU runs the test in a child process on one CPU.
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

// TestFullBuffer checks that the helper returns an error for an event that does not fit, so that
// the program can count it, and that all other events are read.
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
				t.Errorf("read %d of %d accepted events, %d refused", read, sent, refused)
			}
		})
	}
}

func TestPerfOrderAcrossCPUs(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("needs two CPUs")
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
		g := next(t, c)
		for errors.Is(g.err, ErrIdle) { // nothing was read for a second
			g = next(t, c)
		}
		idle := next(t, c)
		if g.err != nil || !errors.Is(idle.err, ErrIdle) {
			t.Fatalf("%+v, then %+v", g, idle)
		}
		took = append(took, g.at.Sub(begin))
	}
	if m := median(took); m < hold {
		t.Errorf("read after %s (median), want at least %s", m, hold)
	}
}

// TestIdleWithoutEvents checks that Read returns ErrIdle although no event arrives, so that losses are
// reported.
func TestIdleWithoutEvents(t *testing.T) {
	for kind, entries := range map[ebpf.MapType]uint32{ebpf.RingBuf: uint32(os.Getpagesize()), ebpf.PerfEventArray: 0} {
		t.Run(kind.String(), func(t *testing.T) {
			c := follow(newReader(t, newSender(t, kind, entries)))
			for range 2 {
				if g := next(t, c); !errors.Is(g.err, ErrIdle) {
					t.Errorf("%+v, want ErrIdle", g)
				}
			}
		})
	}
}

// TestCloseEndsRead checks that Close ends a Read that waits.
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
	if _, err := New(s.events, 0, Delay); err == nil {
		t.Error("perf buffers of 0 bytes: no error")
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := New(m, 4096, Delay); err == nil {
		t.Error("reader of an array: no error")
	}
}

// BenchmarkIdleReader measures the CPU time per second of a reader without events.
func BenchmarkIdleReader(b *testing.B) {
	s := newSender(b, ebpf.RingBuf, uint32(os.Getpagesize()))
	r := newReader(b, s)
	c := follow(r)
	time.Sleep(2 * pollIdle)
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
