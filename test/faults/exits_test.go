package faults

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
)

// held is the set of kernel objects that a process refers to, by IDs, which the kernel does not
// reuse soon. An object that is pinned, or that another object refers to, still exists after the
// process has exited.
type held struct {
	programs []ebpf.ProgramID
	maps     []ebpf.MapID
	links    []link.ID
	types    []btf.ID
	perf     int // perf events
}

// heldBy reads fdinfo of all descriptors of the process, and adds the maps of its programs.
func heldBy(t testing.TB, pid int) *held {
	t.Helper()
	h := &held{}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		to, _ := os.Readlink(strings.Replace(file, "fdinfo", "fd", 1))
		if strings.Contains(to, "[perf_event]") {
			h.perf++
		}
		text, _ := os.ReadFile(file)
		h.read(string(text))
	}
	for _, id := range h.programs {
		h.addMaps(t, id)
	}
	return h
}

func (h *held) read(fdinfo string) {
	for line := range strings.Lines(fdinfo) {
		var id uint32
		name, val, _ := strings.Cut(line, ":")
		if _, err := fmt.Sscan(val, &id); err != nil {
			continue
		}
		switch name {
		case "prog_id":
			h.programs = append(h.programs, ebpf.ProgramID(id))
		case "map_id":
			h.maps = append(h.maps, ebpf.MapID(id))
		case "link_id":
			h.links = append(h.links, link.ID(id))
		case "btf_id":
			h.types = append(h.types, btf.ID(id))
		}
	}
}

func (h *held) addMaps(t testing.TB, id ebpf.ProgramID) {
	t.Helper()
	prog, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, os.ErrNotExist) {
		return // the process has ended
	}
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		t.Fatal(err)
	}
	maps, _ := info.MapIDs()
	h.maps = append(h.maps, maps...)
	if id, ok := info.BTFID(); ok {
		h.types = append(h.types, id)
	}
}

// left lists the objects that still exist in the kernel.
func (h *held) left() (all []string) {
	for _, id := range h.programs {
		p, err := ebpf.NewProgramFromID(id)
		all = appendIfExists(all, "program", id, err)
		p.Close()
	}
	for _, id := range h.maps {
		m, err := ebpf.NewMapFromID(id)
		all = appendIfExists(all, "map", id, err)
		m.Close()
	}
	for _, id := range h.links {
		l, err := link.NewFromID(id)
		if all = appendIfExists(all, "link", id, err); err == nil {
			l.Close()
		}
	}
	for _, id := range h.types {
		b, err := btf.NewHandleFromID(id)
		if all = appendIfExists(all, "types", id, err); err == nil {
			b.Close()
		}
	}
	return all
}

func appendIfExists(all []string, what string, id any, err error) []string {
	if errors.Is(err, os.ErrNotExist) {
		return all
	}
	return append(all, fmt.Sprintf("%s %v (%v)", what, id, err))
}

// checkGone waits until none of the objects exists: the kernel frees them after RCU grace periods.
func (h *held) checkGone(t testing.TB) {
	t.Helper()
	for end := time.Now().Add(deadline); ; time.Sleep(10 * time.Millisecond) {
		left := h.left()
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("kernel objects still exist: %v", left)
		}
	}
}

// exit is a way to terminate the tool, with a check of how it ended.
type exit struct {
	end  func(*run, testing.TB)
	want func(*run) bool
}

// exits are the ways to terminate a tool. On SIGABRT the Go runtime crashes as on a panic: it
// prints all goroutines and exits without running deferred calls.
func exits() map[string]exit {
	by := func(sig os.Signal, want func(*run) bool) exit {
		return exit{func(r *run, t testing.TB) { r.signal(t, sig) }, want}
	}
	ordered := func(r *run) bool { return r.ProcessState.ExitCode() == 0 && r.summary != nil }
	crashed := func(r *run) bool {
		return r.ProcessState.ExitCode() == 2 && strings.Contains(r.stderr.String(), "goroutine ")
	}
	return map[string]exit{
		"SIGINT":  by(unix.SIGINT, ordered),
		"SIGTERM": by(unix.SIGTERM, ordered),
		"SIGABRT": by(unix.SIGABRT, crashed),
		"SIGKILL": by(unix.SIGKILL, func(r *run) bool { return wasKilled(r.ProcessState) }),
		"reader closed": {
			func(r *run, _ testing.TB) { r.out.Close() },
			func(r *run) bool { return r.ProcessState.ExitCode() == 0 },
		},
	}
}

// TestExits terminates the tool in each way while its programs run, and checks that none of its
// objects remains in the kernel. A list without programs has no objects, and can end before that.
func TestExits(t *testing.T) {
	skipShort(t)
	running := slices.DeleteFunc(representatives(t), func(tl *tool.Tool) bool {
		w := workloads()[tl.Name]
		return tl.NoPrograms && w.isList()
	})
	for name, exit := range exits() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := func(s *subject) { s.checkExit(exit) }
			if name == "SIGKILL" {
				eachBuffer(t, running, test)
			} else {
				eachTool(t, running, test)
			}
		})
	}
}

// startRunning starts the tool and returns when it is ready. A list would end by itself, so its
// output is not read until goOn is called, which blocks it.
func (s *subject) startRunning(r *run) (goOn func()) {
	s.Helper()
	if !s.isList() {
		r.start(s).await(s)
		return func() {}
	}
	begin := make(chan struct{})
	goOn = sync.OnceFunc(func() { close(begin) })
	s.Cleanup(goOn)
	r.startReading(s, func(from io.Reader) io.Reader { return &afterLine{from, begin, false} }).await(s)
	return goOn
}

// afterLine reads one line, and the rest after begin is closed.
type afterLine struct {
	from  io.Reader
	begin chan struct{}
	over  bool // the first line has been read
}

func (a *afterLine) Read(b []byte) (int, error) {
	if a.over {
		<-a.begin
		return a.from.Read(b)
	}
	n, err := a.from.Read(b[:1])
	a.over = n > 0 && b[0] == '\n'
	return n, err
}

func (s *subject) checkExit(e exit) {
	s.Helper()
	r := s.command()
	goOn := s.startRunning(r)
	h := heldBy(s, r.Process.Pid)
	if s.tool.NoPrograms && len(h.programs)+len(h.maps)+len(h.links)+h.perf > 0 {
		s.Fatalf("kernel objects of a tool without programs: %+v", h)
	}
	if !s.tool.NoPrograms && (len(h.programs) == 0 || len(h.maps) == 0 || len(h.links)+h.perf == 0 && !s.isList() || s.perf && h.perf == 0) {
		s.Fatalf("unexpected kernel objects while it runs: %+v", h)
	}
	done := s.usual()
	e.end(r, s)
	goOn()
	r.end(s)
	if !e.want(r) {
		s.Errorf("%v, summary %v: %s", r.ProcessState, r.summary, &r.stderr)
	}
	if r.summary != nil && !s.isList() { // an interrupted list is incomplete
		r.judge(s, done)
	}
	h.checkGone(s)
}
