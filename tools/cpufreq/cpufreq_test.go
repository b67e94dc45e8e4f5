package cpufreq

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { schedtest.Main(m) }

func TestFrequencies(t *testing.T) {
	dir := t.TempDir()
	for cpu, text := range map[string]string{"cpu0": "1800000\n", "cpu2": "2400000\n", "cpu3": "<unknown>\n"} {
		if err := os.MkdirAll(filepath.Join(dir, cpu, "cpufreq"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, cpu, "cpufreq/scaling_cur_freq"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	khz, err := frequencies(dir)
	if err != nil || !slices.Equal(khz, []uint32{1800000, 0, 2400000, 0}) {
		t.Errorf("frequencies are %v, %v", khz, err)
	}
}

// TestUnsupported checks the message on a machine without cpufreq.
func TestUnsupported(t *testing.T) {
	tooltest.Root(t)
	if _, err := os.Stat("/sys/devices/system/cpu/cpu0/cpufreq"); err == nil {
		t.Skip("this machine has cpufreq")
	}
	tooltest.Fails(t, Tool, nil, tool.ExitUnsupported, "CONFIG_CPU_FREQ")
}

// TestSamples checks that the frequency of a thread is within the limits of its CPU.
func TestSamples(t *testing.T) {
	tooltest.Root(t)
	if _, err := os.Stat("/sys/devices/system/cpu/cpu0/cpufreq"); err != nil {
		t.Skipf("this machine has no cpufreq: %v", err)
	}
	w := schedtest.Start(t, schedtest.CPUs(t)[0], nil)
	res := tooltest.JSON(t, Tool, []string{"--comms", "--comm", "cpufreq.test"}, func() {
		w.Begin(t, "spin", 500)
		w.End(t)
	})
	if len(res.Histograms) != 1 || res.Histograms[0].Num("count") == 0 || res.Histograms[0].Num("min") < 100 || res.Histograms[0].Num("max") > 10000 {
		t.Errorf("histograms are %v", res.Histograms)
	}
}

// TestProgram runs the program of the tracepoint, which notes the frequency of the CPU.
func TestProgram(t *testing.T) {
	first := make([]uint32, 1024)
	first[2] = 1800000
	p := tooltest.LoadPrograms(t, loadBpf, map[string]any{"cpu_khz": first}, "frequency__raw")
	p.Run("frequency__raw", 2500000, 3)
	khz := make([]uint32, 1024)
	if err := p.Variables["cpu_khz"].Get(khz); err != nil {
		t.Fatal(err)
	}
	for cpu, n := range khz {
		if want := map[int]uint32{2: 1800000, 3: 2500000}[cpu]; n != want {
			t.Errorf("CPU %d has %d kHz, want %d", cpu, n, want)
		}
	}
}
