package llcstat

import (
	"strconv"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { schedtest.Main(m) }

func hasCounters(t *testing.T) bool {
	t.Helper()
	return tooltest.HasHardwareCounter(t, unix.PERF_COUNT_HW_CACHE_REFERENCES) &&
		tooltest.HasHardwareCounter(t, unix.PERF_COUNT_HW_CACHE_MISSES)
}

// TestUnsupported checks the message on a machine without the hardware counters.
func TestUnsupported(t *testing.T) {
	if hasCounters(t) {
		t.Skip("this machine has the hardware counters")
	}
	tooltest.Fails(t, Tool, nil, tool.ExitUnsupported, "no hardware counter (PMU)")
}

// TestCounts counts references of a thread that uses CPU time.
func TestCounts(t *testing.T) {
	if !hasCounters(t) {
		t.Skip("this machine does not have the hardware counters")
	}
	const period = 1000
	cpu := schedtest.CPUs(t)[0]
	w := schedtest.Start(t, cpu, nil)
	res := tooltest.JSON(t, Tool, []string{"-t", "-c", strconv.Itoa(period), "--tid", strconv.Itoa(w.PID)}, func() {
		w.Begin(t, "spin", 500)
		w.End(t)
	})
	if len(res.Rows) != 1 {
		t.Fatalf("%d rows, want 1: %v", len(res.Rows), res.Rows)
	}
	r := res.Rows[0]
	if int(r.Num("tid")) != w.PID || int(r.Num("cpu")) != cpu || r.Str("comm") != "llcstat.test" || r.Num("references") == 0 ||
		int(r.Num("references"))%period != 0 || int(r.Num("misses"))%period != 0 {
		t.Errorf("row %v of thread %d on CPU %d", r, w.PID, cpu)
	}
}

// TestPrograms attaches the programs to context switches of a thread instead, of which the number is
// known: they count each one as a reference, and each third one as three misses.
func TestPrograms(t *testing.T) {
	p := tooltest.LoadPrograms(t, loadBpf, map[string]any{"by_tid": true}, "references__perf", "misses__perf")
	cpu := schedtest.CPUs(t)[0]
	a, b := schedtest.Pair(t, cpu, cpu, nil)
	for name, period := range map[string]uint64{"references__perf": 1, "misses__perf": 3} {
		defer unix.Close(onSwitches(t, p.Programs[name], a.PID, period))
	}
	before := a.Facts(t)
	schedtest.Play(t, a, b, 500)
	facts := a.Facts(t).Since(before)
	want := facts.Woken + facts.Preempted
	var entry struct {
		Key        key
		Epoch, CPU uint32
	}
	var c, sum counts
	for all := p.Maps["table"].Iterate(); all.Next(&entry, &c); {
		if int(entry.Key.PID) != a.PID || int(entry.Key.TID) != a.PID || int(entry.Key.CPU) != cpu || entry.Key.Comm.String() != "llcstat.test" {
			t.Errorf("entry of another thread: %+v", entry)
		}
		sum.References += c.References
		sum.Misses += c.Misses
	}
	if sum.References != want || sum.Misses != want/3*3 {
		t.Errorf("%+v in %d context switches", sum, want)
	}
}

// onSwitches runs a program at context switches of a thread.
func onSwitches(t *testing.T, prog *ebpf.Program, tid int, period uint64) (fd int) {
	t.Helper()
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CONTEXT_SWITCHES,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Sample: period, Bits: unix.PerfBitDisabled,
	}
	fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Fatalf("open perf event: %v", err)
	}
	for _, request := range [][2]int{{unix.PERF_EVENT_IOC_SET_BPF, prog.FD()}, {unix.PERF_EVENT_IOC_ENABLE, 0}} {
		if err := unix.IoctlSetInt(fd, uint(request[0]), request[1]); err != nil {
			t.Fatalf("attach to perf event: %v", err)
		}
	}
	return fd
}
