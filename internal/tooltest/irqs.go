package tooltest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// IRQs reads the kernel's counts of the interrupts with a number.
func IRQs(t testing.TB) map[int]int {
	t.Helper()
	counts, _ := interrupts(t)
	return counts
}

// IRQHandlers reads the names of the handlers of each interrupt, preceded by words about the
// interrupt, and separated by commas.
func IRQHandlers(t testing.TB) map[int]string {
	t.Helper()
	_, handlers := interrupts(t)
	return handlers
}

func interrupts(t testing.TB) (counts map[int]int, handlers map[int]string) {
	t.Helper()
	text, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		t.Fatal(err)
	}
	counts, handlers = map[int]int{}, map[int]string{}
	for line := range strings.Lines(string(text)) {
		number, rest, _ := strings.Cut(line, ":")
		irq, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil {
			continue
		}
		n, words := sum(strings.Fields(rest))
		counts[irq], handlers[irq] = n, strings.Join(words, " ")
	}
	return counts, handlers
}

// Softirqs reads the kernel's counts of softirqs, with names in lower case.
func Softirqs(t testing.TB) map[string]int {
	t.Helper()
	text, err := os.ReadFile("/proc/softirqs")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if name, rest, ok := strings.Cut(line, ":"); ok {
			all[strings.ToLower(strings.TrimSpace(name))], _ = sum(strings.Fields(rest))
		}
	}
	return all
}

// sum adds the numbers that the words begin with, and returns the other words.
func sum(words []string) (n int, rest []string) {
	for i, word := range words {
		more, err := strconv.Atoi(word)
		if err != nil {
			return n, words[i:]
		}
		n += more
	}
	return n, nil
}

// Bounds are the numbers of events that a tool may report, by counters of the kernel: at least those
// during the load, and at most those since the run before, or since the start.
type Bounds[K comparable] struct {
	Read func() map[K]int

	before, begin, end, after map[K]int
}

// NewBounds reads the counters.
func NewBounds[K comparable](read func() map[K]int) *Bounds[K] {
	return &Bounds[K]{Read: read, after: read()}
}

// During runs the load. If it is called again, only its last call counts.
func (b *Bounds[K]) During(load func()) {
	b.before = b.after
	b.begin = b.Read()
	load()
	b.end = b.Read()
	b.after = b.end
}

// Close reads the counters when the tool has ended.
func (b *Bounds[K]) Close() { b.after = b.Read() }

// Of returns the bounds for a counter.
func (b *Bounds[K]) Of(key K) (least, most int) {
	return b.end[key] - b.begin[key], b.after[key] - b.before[key]
}

// Interrupt reads from disks until enough interrupts with a number have occurred. It skips the test
// if none occurs.
func Interrupt(t testing.TB, enough int) {
	t.Helper()
	block, err := unix.Mmap(-1, 0, BlockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(block)
	files := uncached(t)
	begin := total(IRQs(t))
	for end := time.Now().Add(deadline / 8); time.Now().Before(end); {
		for _, file := range files {
			_, _ = unix.Pread(int(file.Fd()), block, 0)
		}
		if total(IRQs(t))-begin >= enough {
			return
		}
		time.Sleep(time.Millisecond)
	}
	if n := total(IRQs(t)) - begin; n > 0 {
		t.Fatalf("only %d interrupts with a number", n)
	}
	t.Skipf("no interrupt with a number occurs on this machine, although %d disks and files were read", len(files))
}

// uncached opens, without the page cache, the disks and a new file. A device cgroup can deny access
// to the disks, and some file systems have no disk.
func uncached(t testing.TB) (files []*os.File) {
	t.Helper()
	open := func(path string) {
		if f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0); err == nil {
			t.Cleanup(func() { f.Close() })
			files = append(files, f)
		}
	}
	disks, _ := filepath.Glob("/sys/block/*/device") // the only error is a malformed pattern
	for _, disk := range disks {
		open("/dev/" + filepath.Base(filepath.Dir(disk)))
	}
	path := filepath.Join(t.TempDir(), "block")
	if err := os.WriteFile(path, make([]byte, BlockSize), 0o600); err != nil {
		t.Fatal(err)
	}
	open(path)
	return files
}

func total(counts map[int]int) (n int) {
	for _, more := range counts {
		n += more
	}
	return n
}

// Datagrams sends n datagrams to itself over the loopback interface. Each raises the softirq net_rx
// in the sending thread, which usually runs it too.
func Datagrams(n int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("create socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	to, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("read address: %w", err)
	}
	for range n {
		if err := unix.Sendto(fd, []byte{1}, 0, to); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		if _, _, err := unix.Recvfrom(fd, make([]byte, 1), 0); err != nil {
			return fmt.Errorf("receive: %w", err)
		}
	}
	return nil
}

// PinThread restricts the thread of this goroutine to one CPU, and dedicates it to the goroutine.
func PinThread(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread exits with the goroutine
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
}
