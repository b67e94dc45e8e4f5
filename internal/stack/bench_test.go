package stack

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

func BenchmarkKernelLoad(b *testing.B) {
	loadLive(b)
	before := heap()
	var k *Kernel
	for b.Loop() {
		k = NewKernel()
		if err := k.Load(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(heap()-before), "heap-bytes")
	b.ReportMetric(float64(len(k.table.starts)), "symbols")
}

func BenchmarkKernelAppend(b *testing.B) {
	k := loadLive(b)
	addrs := sample(k.table, 4096)
	benchmarkLookups(b, addrs, func(dst []Frame, addrs []uint64) []Frame { return k.Append(dst, addrs) })
}

// BenchmarkProcessAppend looks up addresses of this program whose symbols have been read, like most
// addresses in a profile.
func BenchmarkProcessAppend(b *testing.B) {
	ps := newProcesses(b)
	pid := os.Getpid()
	ps.name(pid, uint64(funcAddress()))
	s := ps.pids[pid].snapshot
	addrs := sample(s.mapping(uint64(funcAddress())).module.loaded.Load().tables[0], 4096)
	benchmarkLookups(b, addrs, func(dst []Frame, addrs []uint64) []Frame { return ps.Append(dst, pid, addrs) })
}

// sample returns n addresses, evenly distributed over the functions of a table.
func sample(t *table, n int) []uint64 {
	addrs := make([]uint64, n)
	for i := range addrs {
		addrs[i] = t.starts[i*len(t.starts)/n] + 1
	}
	return addrs
}

func benchmarkLookups(b *testing.B, addrs []uint64, appendFrames func([]Frame, []uint64) []Frame) {
	const depth = 16
	frames := make([]Frame, 0, depth)
	named, n := 0, 0
	for b.Loop() {
		i := n * depth % len(addrs)
		frames = appendFrames(frames[:0], addrs[i:i+depth])
		if frames[0].Name != "" {
			named++
		}
		n++
	}
	if named*100 < n*95 {
		b.Errorf("%d of %d stacks have a name for the innermost frame, want 95 %%", named, n)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*depth), "ns/frame")
}

// BenchmarkModuleLarge reads the symbols of the largest of some programs that can be installed.
func BenchmarkModuleLarge(b *testing.B) {
	file := largest(b, "node", "gdb", "go")
	before := heap()
	var s *symbols
	for b.Loop() {
		s = readFile(b, file)
	}
	b.ReportMetric(float64(heap()-before), "heap-bytes")
	b.ReportMetric(float64(len(s.tables[0].starts)), "symbols")
	b.ReportMetric(float64(s.bytes()), "accounted-bytes")
}

func readFile(b *testing.B, file string) *symbols {
	f, err := os.Open(file)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	s, err := readSymbols(f, info.Size(), "a")
	if err != nil || len(s.tables) == 0 {
		b.Fatalf("%d tables, %v", len(s.tables), err)
	}
	return s
}

func largest(b *testing.B, commands ...string) (file string) {
	var size int64
	for _, c := range commands {
		path, err := exec.LookPath(c)
		if err != nil {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Size() > size {
			file, size = path, info.Size()
		}
	}
	if file == "" {
		b.Skipf("none of %v is installed", commands)
	}
	return file
}

func BenchmarkRemember(b *testing.B) {
	c := start(b, compile(b, program))
	ps := newProcesses(b)
	b.ResetTimer()
	for b.Loop() {
		ps.Forget(c.pid())
		if err := ps.Remember(c.pid()); err != nil {
			b.Fatal(err)
		}
	}
}

// heap returns the size of live heap objects in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
