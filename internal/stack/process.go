package stack

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/limit"
)

const (
	defaultBudget = 256 << 20
	// maxProcesses bounds the processes that are remembered; the one that has
	// not been asked for the longest time is forgotten first.
	maxProcesses = 8192
	// refreshEvery is how often at most the mappings of a process are read
	// again for addresses they do not hold. Broken stacks hold many.
	refreshEvery = 100 * time.Millisecond
	// mostRest is how long they rest where that has found nothing new again and again, as
	// in a JIT compiler's process that writes no map, until something is heard of.
	mostRest = 2 * time.Second
)

// Processes names user addresses. It may be used by several goroutines.
type Processes struct {
	cache  cache
	self   *root // our own root, nil if it cannot be opened
	now    func() time.Time
	heard  heard
	files  files
	detail Detail

	vdsoOnce   sync.Once
	vdsoMemory []byte

	snapshots atomic.Int64 // bytes of all snapshots

	mu     sync.Mutex
	pids   map[int]*process
	shared map[inodeID]*root
}

// process is what is known of one pid.
type process struct {
	pid  int
	exe  string // link to the program it runs
	used atomic.Int64

	mu        sync.Mutex
	space     uint32        // its address space when it was met
	root      *root         // its root directory then, nil if it could not be opened
	taken     *snapshot     // nil if none could be taken
	gone      Reason        // why no newer one can be: Named if it can
	read      time.Time     // when that was
	cost      time.Duration // how long it took
	rest      time.Duration // how long until the next, as long as nothing is heard of the process
	forgotten bool          // no longer the process of its pid

	stirred atomic.Bool // it was heard of since
}

// NewProcesses returns a Processes whose symbol tables take up to budget bytes
// of memory, 256 MiB if it is 0. A single file larger than that is kept as
// long as no other is needed. Close it to release the files it holds.
func NewProcesses(budget int64) *Processes {
	if budget == 0 {
		budget = defaultBudget
	}
	self, _ := openRoot("/")
	return &Processes{
		cache:  cache{budget: budget, modules: make(map[moduleKey]*module)},
		self:   self,
		now:    time.Now,
		pids:   make(map[int]*process),
		shared: make(map[inodeID]*root),
	}
}

// Report sets where inputs that exceed a limit are reported. It is called before there are frames.
func (ps *Processes) Report(r *limit.Reporter) { ps.cache.limits = r }

// Remember reads the mappings of a process and holds its files, so that its
// addresses can be named after it has exited; no symbols are read yet. Call it
// when a pid is seen first, when its process has called exec, and when the pid
// has been given to another process, which takes the place of the first. The
// error says why the process could not be read; Append may be called all the
// same.
func (ps *Processes) Remember(pid int) error {
	p := ps.lock(pid)
	defer p.mu.Unlock()
	return ps.take(p, true)
}

// Append appends the frames of the addresses of a user stack of process pid,
// innermost first, up to a zero address. A process that is not remembered is
// now, and read again if it runs another program than then. Addresses outside
// its mappings make it read them again as well, not more often than ten times
// a second. What it has unmapped since is kept; but where an exec has put other
// code in the same place, addresses sampled before it are named after that.
func (ps *Processes) Append(dst []Frame, pid int, addrs []uint64) []Frame {
	return ps.AppendAt(dst, pid, addrs, 0)
}

// AppendAt is Append for a stack of an earlier time, on CLOCK_MONOTONIC in ns. The code of a
// JIT compiler that writes jitdumps is named after what lay there then, as it may have put
// another function in the same place since.
func (ps *Processes) AppendAt(dst []Frame, pid int, addrs []uint64, at uint64) []Frame {
	return ps.AppendCode(dst, pid, addrs, nil, at)
}

// AppendCode is AppendAt for a stack whose mappings are known as they were then. It needs no
// others but for code that is of no program, which JIT compilers make.
func (ps *Processes) AppendCode(dst []Frame, pid int, addrs []uint64, code []Code, at uint64) []Frame {
	p := ps.lock(pid)
	defer p.mu.Unlock()
	isCurrent := false
	exact := true
	for _, addr := range addrs {
		if addr == 0 {
			break
		}
		l, ok := ps.locate(p, addr, exact, code)
		if !ok {
			if !isCurrent {
				ps.update(p)
				isCurrent = true
			}
			l = ps.frame(p, addr, exact, at)
		}
		exact = isTrampoline(l.Name)
		dst = ps.appendDetail(dst, &l)
		if ok {
			ps.cache.release(l.module)
		}
	}
	return dst
}

// update reads the mappings of a process that has none yet, or runs another program now.
func (ps *Processes) update(p *process) {
	if p.taken == nil {
		ps.refresh(p)
	} else if p.runsOther() {
		_ = ps.take(p, false)
	}
}

// Meet is called for a process whose stack comes, with the mappings in that; space is another
// number after an exec, and for another process of the same pid. It holds what has to be
// there after the process has ended.
func (ps *Processes) Meet(pid int, space uint32, code []Code) {
	p := ps.lock(pid)
	defer p.mu.Unlock()
	isNew := p.space != space || space == 0
	isMade := len(code) == 0 || slices.ContainsFunc(code, func(c Code) bool { return c.File.Kind == binary.KindAnonymous })
	if isNew {
		p.space = space
		ps.unshareRoot(p.root)
		p.root = ps.shareRoot(fmt.Sprintf("/proc/%d", pid))
	}
	if isNew && (isMade || p.taken != nil) || isMade && p.taken == nil && p.gone == Named {
		_ = ps.take(p, true) // its frames will say why, if that fails
	}
}

// runsOther reports whether the process has called exec since the snapshot.
func (p *process) runsOther() bool {
	if p.gone == Exited || p.taken.program == (inodeID{}) {
		return false
	}
	program, err := inodeOf(p.exe)
	return err == nil && program != p.taken.program
}

// Forget releases what is held for a process.
func (ps *Processes) Forget(pid int) {
	ps.mu.Lock()
	p := ps.pids[pid]
	delete(ps.pids, pid)
	ps.mu.Unlock()
	if p != nil {
		ps.clear(p)
	}
}

// Close releases everything.
func (ps *Processes) Close() error {
	ps.mu.Lock()
	pids := ps.pids
	ps.pids = make(map[int]*process)
	ps.mu.Unlock()
	for _, p := range pids {
		ps.clear(p)
	}
	ps.files.close()
	if ps.self != nil {
		return ps.self.dir.Close()
	}
	return nil
}

func (ps *Processes) clear(p *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ps.discard(p.taken)
	ps.unshareRoot(p.root)
	ps.keep(p, nil)
	p.root, p.forgotten = nil, true
}

// lock returns the process of that pid, locked.
func (ps *Processes) lock(pid int) *process {
	for {
		p := ps.process(pid)
		p.mu.Lock()
		if !p.forgotten {
			return p
		}
		p.mu.Unlock()
	}
}

// process returns the one of that pid, making room for it if there are many.
func (ps *Processes) process(pid int) *process {
	ps.mu.Lock()
	p := ps.pids[pid]
	var oldest *process
	if len(ps.pids) >= maxProcesses && p == nil || len(ps.pids) > 1 && ps.snapshots.Load() > limit.Snapshots {
		if oldest = ps.oldest(); oldest != p {
			delete(ps.pids, oldest.pid)
		} else {
			oldest = nil
		}
	}
	if p == nil {
		p = &process{pid: pid, exe: fmt.Sprintf("/proc/%d/exe", pid)}
		ps.pids[pid] = p
	}
	p.used.Store(ps.cache.tick.Add(1))
	ps.mu.Unlock()
	if oldest != nil {
		ps.clear(oldest)
	}
	return p
}

func (ps *Processes) oldest() *process {
	var oldest *process
	for _, p := range ps.pids {
		if oldest == nil || p.used.Load() < oldest.used.Load() {
			oldest = p
		}
	}
	return oldest
}

// take replaces the snapshot of p, by one of another process of its pid only if
// a successor is welcome. One that cannot be replaced stays.
func (ps *Processes) take(p *process, successor bool) error {
	stirred, began := p.stirred.Swap(false), ps.now()
	s, err := ps.read(p.pid, p.taken, successor)
	p.read = ps.now()
	p.cost = p.read.Sub(began)
	p.rest = ps.restAfter(p, s, stirred)
	if err != nil {
		p.gone = reasonOf(err)
		if p.gone == Exited && (p.taken == nil || stirred) && ps.recall(p) {
			return nil
		}
		return fmt.Errorf("read mappings of process %d: %w", p.pid, err)
	}
	ps.discard(p.taken)
	ps.keep(p, s)
	p.gone = Named
	return nil
}

// keep makes s the snapshot of p.
func (ps *Processes) keep(p *process, s *snapshot) {
	ps.snapshots.Add(s.bytes() - p.taken.bytes())
	p.taken = s
}

// restAfter doubles the rest as long as mappings are heard of, and snapshots are alike.
func (ps *Processes) restAfter(p *process, s *snapshot, stirred bool) time.Duration {
	if stirred || !ps.heard.hasAny() || !s.isLike(p.taken) {
		return 0
	}
	return min(max(2*p.rest, refreshEvery), mostRest)
}

// pause is how long after a snapshot the next one may be taken: a tenth of the time at most
// goes into processes that map a lot. Of one that was heard of, what is there is known to be old, as in
// the midst of an exec.
func (p *process) pause() time.Duration {
	if p.stirred.Load() {
		return p.cost
	}
	return max(refreshEvery, 10*p.cost, p.rest)
}

// refresh takes a new snapshot if it is time, and reports whether it tried:
// another one, or the exit of the process, may change what is said of an
// address.
func (ps *Processes) refresh(p *process) bool {
	isOver := p.gone == Exited && p.taken != nil && !p.stirred.Load()
	if isOver || ps.now().Before(p.read.Add(p.pause())) {
		return false
	}
	_ = ps.take(p, false)
	return true
}

// discard releases what a snapshot refers to.
func (ps *Processes) discard(s *snapshot) {
	if s == nil {
		return
	}
	ps.releaseMaps(s)
	for _, j := range s.jits {
		ps.cache.release(j.module)
	}
	ps.unshareRoot(s.root)
}

func (ps *Processes) releaseMaps(s *snapshot) {
	for i := range s.maps {
		if m := s.maps[i].module; m != nil {
			ps.cache.release(m)
		}
	}
}

// shareRoot opens the root of a process; processes of one container share it.
func (ps *Processes) shareRoot(dir string) *root {
	r, err := openRoot(dir + "/root")
	if err != nil {
		return nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if known := ps.shared[r.id]; known != nil {
		r.dir.Close()
		r = known
	}
	ps.shared[r.id] = r
	r.refs++
	return r
}

func (ps *Processes) unshareRoot(r *root) {
	if r == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if r.refs--; r.refs == 0 {
		delete(ps.shared, r.id)
		r.dir.Close()
	}
}

// roots lists where to look for the files of a process whose root is r.
func (ps *Processes) roots(r *root) []*root {
	roots := make([]*root, 0, 2)
	if r != nil {
		roots = append(roots, r)
	}
	if ps.self != nil && (r == nil || r.id != ps.self.id) {
		roots = append(roots, ps.self)
	}
	return roots
}
