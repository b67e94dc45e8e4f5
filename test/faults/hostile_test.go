package faults

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/limit"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools"
)

// hostileMemoryKB is the memory in KB (VmHWM) that a tool may use for hostile input, within the
// limits of internal/limit, including garbage of the Go runtime.
const hostileMemoryKB = 400 << 10

// hostile is input from a process that would exceed the memory limit of a tool if it were read
// completely.
type hostile struct {
	tool string
	args []string
	// place is the file that contains the load's code, or memoryPlace.
	place func(t *testing.T) string
	// input creates the input for a running load.
	input func(t *testing.T, l *load)
	// notice is the expected message; PID and FILE stand for the load's process and its place.
	notice string
}

func hostiles() map[string]hostile {
	inMemory := func(*testing.T) string { return memoryPlace }
	none := func(*testing.T, *load) {}
	return map[string]hostile{
		"perf map of 20 million lines": {
			tool: "profile", place: inMemory, input: longPerfMap,
			notice: fmt.Sprintf("process PID: /tmp/perf-PID.map has more than %d functions", limit.JITFunctions),
		},
		"perf map of 1 TiB": {
			tool: "profile", place: inMemory, input: sparsePerfMap,
			notice: fmt.Sprintf("process PID: /tmp/perf-PID.map has more than %d bytes", limit.PerfMapBytes),
		},
		"jitdump": {
			tool: "profile", place: inMemory, input: longJITDump,
			notice: fmt.Sprintf(".dump has more than %d functions", limit.JITFunctions),
		},
		"sections of 16 GiB": {
			tool: "profile", place: largeELF, input: none,
			notice: fmt.Sprintf("/large.so has more than %d symbols", limit.Symbols),
		},
		"compressed sections": {
			tool: "profile", args: []string{"--lines"}, place: compressedELF, input: none,
			notice: fmt.Sprintf("section .zdebug_info of FILE has more than %d bytes", limit.Debug),
		},
		"unwind rules": {
			tool: "profile", args: []string{"--unwind-memory", "1"}, place: ruledELF, input: none,
			notice: fmt.Sprintf("FILE: its unwind table is too large: the file has more than %d rules", 1<<20/4/2),
		},
		"65,000 mappings": {
			tool: "profile", place: inMemory, input: manyMappings,
			notice: fmt.Sprintf("process PID: /proc/PID/maps has more than %d executable mappings", limit.Mappings),
		},
	}
}

// TestHostileInput runs a process with input that would take gigabytes. The tool uses bounded
// memory, still shows the process, and reports what it truncated.
func TestHostileInput(t *testing.T) {
	skipShort(t)
	for name, h := range hostiles() {
		t.Run(name, func(t *testing.T) {
			place := h.place(t)
			l := newLoad(t, place)
			h.input(t, l)
			r := (&subject{T: t, load: l, tool: toolNamed(t, h.tool), workload: workload{
				args: func(l *load) []string {
					return append([]string{"-F", "99", "--interval", "1", "--pid", strconv.Itoa(l.pid)}, h.args...)
				}, column: "count",
			}}).command()
			notices := &notices{}
			r.Stderr = notices
			r.keep = true
			r.start(t).await(t)
			want := strings.NewReplacer("PID", strconv.Itoa(l.pid), "FILE", place).Replace(h.notice)
			for end := time.Now().Add(deadline); !strings.Contains(notices.text(), want); {
				l.do(t, "spin code", 50)
				if time.Now().After(end) {
					t.Fatalf("no notice %q: %s", want, notices.text())
				}
			}
			if n := strings.Count(notices.text(), want); n != 1 {
				t.Errorf("%d notices %q: %s", n, want, notices.text())
			}
			r.checkMemory(t)
			r.stop(t)
			if r.rows == 0 {
				t.Error("no samples of the load")
			}
		})
	}
}

// TestHostileArguments lists a process whose arguments exceed limit.Arguments.
func TestHostileArguments(t *testing.T) {
	argv := []string{"sh", "-c", "read line", "sh"}
	for len(argv) < 20 {
		argv = append(argv, strings.Repeat("x", 100<<10)) // Linux allows 128 KiB per argument (MAX_ARG_STRLEN)
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p, err := os.StartProcess("/bin/sh", argv, &os.ProcAttr{Files: []*os.File{in}})
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	t.Cleanup(func() {
		p.Kill()
		p.Wait()
	})
	s := &subject{T: t, load: &load{pid: p.Pid}, tool: toolNamed(t, "tasks"), workload: workload{
		args:   func(*load) []string { return []string{"--pid", strconv.Itoa(p.Pid), "--columns", "pid,args"} },
		listed: func(*load, testing.TB) int { return 1 },
	}}
	r := s.command()
	r.keep = true
	goOn := s.startRunning(r) // the row exceeds the pipe's capacity, so the tool blocks
	r.checkMemory(t)
	goOn()
	r.stop(t)
	if r.rows != 1 {
		t.Fatalf("%d rows, want 1", r.rows)
	}
	size := 0
	for _, arg := range r.seen[0].List("args") {
		size += len(arg) + 1
	}
	if size < limit.Arguments || size > limit.Arguments+1 {
		t.Errorf("%d bytes of arguments, want %d", size, limit.Arguments)
	}
	want := fmt.Sprintf("process %d: /proc/%d/cmdline has more than %d bytes", p.Pid, p.Pid, limit.Arguments)
	if !strings.Contains(r.stderr.String(), want) {
		t.Errorf("no notice %q: %s", want, &r.stderr)
	}
}

// checkMemory fails the test if the tool's peak memory (VmHWM) exceeds hostileMemoryKB.
func (r *run) checkMemory(t *testing.T) {
	t.Helper()
	used := number(t, fmt.Sprintf("/proc/%d/status", r.Process.Pid), "VmHWM:")
	t.Logf("used %d KB", used)
	if used > hostileMemoryKB {
		t.Errorf("used %d KB of memory, want at most %d", used, hostileMemoryKB)
	}
}

// notices collects the standard error of a running tool.
type notices struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (n *notices) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all.Write(b)
}

func (n *notices) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all.String()
}

// pages is the code that the load has mapped, by place.
var pages = map[string][]byte{}

// memoryPlace stands for code in anonymous memory, as JIT compilers generate it.
const memoryPlace = "-"

// codeOffset is the file offset of the code.
const codeOffset = 0x10000

// spinsCode spends n ms of CPU time in code that is mapped from a file or in anonymous memory.
func spinsCode(n int, place string) (int, error) {
	page := pages[place]
	if page == nil {
		var err error
		if page, err = mapCode(place); err != nil {
			return 0, err
		}
		pages[place] = page
	}
	entry := uintptr(unsafe.Pointer(&page[0]))
	closure := &entry
	spin := *(*func())(unsafe.Pointer(&closure)) // a Go func value points to a pointer to its code
	for end := cpuTime() + time.Duration(n)*time.Millisecond; cpuTime() < end; {
		spin()
	}
	return 0, nil
}

func mapCode(place string) ([]byte, error) {
	if place != memoryPlace {
		f, err := os.Open(place)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return unix.Mmap(int(f.Fd()), codeOffset, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	copy(page, spinCode())
	return page, unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC)
}

// spinCode returns machine code that counts a register down from 2^20 and returns.
func spinCode() []byte {
	if runtime.GOARCH == "arm64" { // movz w9, #16, lsl #16; subs w9, w9, #1; b.ne; ret
		return []byte{0x09, 0x02, 0xa0, 0x52, 0x29, 0x05, 0x00, 0x71, 0xe1, 0xff, 0xff, 0x54, 0xc0, 0x03, 0x5f, 0xd6}
	}
	return []byte{0xb9, 0, 0, 0x10, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc3} // mov ecx; dec ecx; jnz; ret
}

func toolNamed(t *testing.T, name string) *tool.Tool {
	t.Helper()
	for _, tl := range tools.All() {
		if tl.Name == name {
			return tl
		}
	}
	t.Fatalf("unknown tool %s", name)
	return nil
}
