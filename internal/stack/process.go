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
	// maxProcesses bounds the number of processes that are kept. If it is reached, the least
	// recently used process is removed.
	maxProcesses = 8192
	// refreshEvery is the shortest time between two reads of the mappings of a process, which
	// addresses outside its known mappings cause. Broken stacks have many of these.
	refreshEvery = 100 * time.Millisecond
	// maxBackoff bounds the time between reads if they find nothing new, as in the process of a JIT
	// compiler that does not write a perf map. An mmap record of the process resets it.
	maxBackoff = 2 * time.Second
)

// Processes symbolizes user addresses. It is safe for concurrent use.
type Processes struct {
	cache  cache
	self   *root // corescope's root, nil if it cannot be opened
	now    func() time.Time
	mmaps  mmapRecords
	files  files
	detail Detail
	settle func(to uint64) // see SetSettle

	vdsoOnce   sync.Once
	vdsoMemory []byte

	snapshots atomic.Int64 // bytes of all snapshots

	mu    sync.Mutex
	pids  map[int]*process
	roots map[inodeID]*root // root directories in use
}

// process is the state of one PID.
type process struct {
	pid  int
	exe  string // /proc/PID/exe
	used atomic.Int64

	mu       sync.Mutex
	space    uint32        // number of the address space (struct stack_head) when Prepare was called
	root     *root         // root directory at that time, nil if it cannot be opened
	snapshot *snapshot     // nil if none could be taken
	failure  Reason        // why the last attempt to take a snapshot failed, or Named
	readAt   time.Time     // end of the last attempt
	readTime time.Duration // duration of the last attempt
	backoff  time.Duration // minimum time until the next attempt, unless the process is stale
	removed  bool          // not the process of its PID any more

	stale atomic.Bool // there is an mmap record since the last attempt
}

// NewProcesses returns a Processes whose symbol tables take up to budget bytes of memory, or 256
// MiB if budget is 0. The symbols in use are kept even if they are larger. Close releases the
// files.
func NewProcesses(budget int64) *Processes {
	if budget == 0 {
		budget = defaultBudget
	}
	self, _ := openRoot("/")
	return &Processes{
		cache: cache{budget: budget, modules: make(map[moduleKey]*module), maxHeld: maxHeld},
		files: files{max: maxFiles},
		self:  self,
		now:   time.Now,
		pids:  make(map[int]*process),
		roots: make(map[inodeID]*root),
	}
}

// SetMaxFiles bounds the number of files that are kept open. Call it before Append.
func (ps *Processes) SetMaxFiles(n int) {
	ps.files.max = min(max(n/2, 1), maxFiles)
	ps.cache.maxHeld = min(n/2, maxHeld)
}

// MaxFiles returns the maximum number of files that are kept open.
func (ps *Processes) MaxFiles() int { return ps.files.max }

// SetReporter sets where exceeded limits are reported. Call it before Append.
func (ps *Processes) SetReporter(r *limit.Reporter) { ps.cache.limits = r }

// Remember reads the mappings of a process and opens its files, so that its addresses can be
// symbolized after it has exited. It does not read symbols. Call it when a PID is first seen, when
// the process has called exec, and when the PID has been reused. The error is that of reading the
// process. Append can be called in spite of an error.
func (ps *Processes) Remember(pid int) error {
	p := ps.lock(pid)
	defer p.mu.Unlock()
	return ps.takeSnapshot(p, true)
}

// Append appends the frames for a user stack of process pid, innermost first, up to a zero address.
// It reads the mappings of the process if there is no snapshot or if the process has called exec
// since; and, at most ten times a second, if an address is outside the known mappings. Mappings
// that the process has removed since are kept. But if an exec placed other code at the same
// address, an address that was sampled before the exec gets a symbol of the new code.
func (ps *Processes) Append(dst []Frame, pid int, addrs []uint64) []Frame {
	return ps.AppendAt(dst, pid, addrs, 0)
}

// AppendAt is Append for a stack that was sampled at a time (CLOCK_MONOTONIC in ns). Code of a JIT
// compiler that writes a jitdump is symbolized as of that time, because the compiler can have
// placed another function at the address since.
func (ps *Processes) AppendAt(dst []Frame, pid int, addrs []uint64, at uint64) []Frame {
	return ps.AppendCode(dst, pid, addrs, nil, at)
}

// AppendCode is AppendAt for a stack that was sampled together with its mappings. Other mappings
// are used only for code outside files, made by a JIT compiler.
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
				ps.updateSnapshot(p)
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

// updateSnapshot takes a snapshot if there is none, or if the process has called exec since.
func (ps *Processes) updateSnapshot(p *process) {
	if p.snapshot == nil {
		ps.refresh(p)
	} else if p.hasExeced() {
		_ = ps.takeSnapshot(p, false)
	}
}

// Prepare is called for each stack of a process, with the mappings in the stack. space is the
// number of the address space, which changes on exec and differs between processes that have the
// same PID. Prepare opens what is needed to symbolize the stack after the process has exited.
func (ps *Processes) Prepare(pid int, space uint32, code []Code) {
	p := ps.lock(pid)
	defer p.mu.Unlock()
	isNew := p.space != space || space == 0
	isAnonymous := func(c Code) bool { return c.File.Kind == binary.KindAnonymous }
	hasAnonymous := len(code) == 0 || slices.ContainsFunc(code, isAnonymous)
	if isNew {
		p.space = space
		ps.unshareRoot(p.root)
		p.root = ps.shareRoot(fmt.Sprintf("/proc/%d", pid))
	}
	if isNew && (hasAnonymous || p.snapshot != nil) || hasAnonymous && p.snapshot == nil && p.failure == Named {
		_ = ps.takeSnapshot(p, true) // on failure, frames have the reason
	}
}

// Update reads the mappings of a process, its perf map and its jitdumps, unless they have been read
// after a time (CLOCK_MONOTONIC in ns). Call it for frames that are [Frame.Late]. Of a process that
// has exited, it reads the perf map and the jitdumps.
func (ps *Processes) Update(pid int, at uint64) {
	p := ps.lock(pid)
	defer p.mu.Unlock()
	if !p.snapshot.isEarlier(at) {
		return
	}
	if p.failure != Exited {
		_ = ps.takeSnapshot(p, false) // on failure, frames have the reason
	}
	if p.failure == Exited {
		ps.updateJIT(p.snapshot)
	}
}

// hasExeced reports whether the process has called exec since the snapshot.
func (p *process) hasExeced() bool {
	if p.failure == Exited || p.snapshot.program == (inodeID{}) {
		return false
	}
	program, err := inodeOf(p.exe)
	return err == nil && program != p.snapshot.program
}

// Forget releases everything that is kept for a process.
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
	ps.releaseSnapshot(p.snapshot)
	ps.unshareRoot(p.root)
	ps.setSnapshot(p, nil)
	p.root, p.removed = nil, true
}

// lock returns the process with a PID, locked.
func (ps *Processes) lock(pid int) *process {
	for {
		p := ps.process(pid)
		p.mu.Lock()
		if !p.removed {
			return p
		}
		p.mu.Unlock()
	}
}

// process returns the process with a PID, and removes the least recently used one if necessary.
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

// takeSnapshot replaces the snapshot of p. If the PID has been reused, it does so only if
// allowReuse is set. If no new snapshot can be taken, the old one is kept.
func (ps *Processes) takeSnapshot(p *process, allowReuse bool) error {
	wasStale, began := p.stale.Swap(false), ps.now()
	s, err := ps.readSnapshot(p.pid, p.snapshot, allowReuse)
	p.readAt = ps.now()
	p.readTime = p.readAt.Sub(began)
	p.backoff = ps.nextBackoff(p, s, wasStale)
	if err != nil {
		p.failure = reasonOf(err)
		if p.failure == Exited && (p.snapshot == nil || wasStale) && ps.takeFromMmaps(p) {
			return nil
		}
		return fmt.Errorf("read mappings of process %d: %w", p.pid, err)
	}
	ps.releaseSnapshot(p.snapshot)
	ps.setSnapshot(p, s)
	p.failure = Named
	return nil
}

// setSnapshot sets the snapshot of p and accounts for its memory.
func (ps *Processes) setSnapshot(p *process, s *snapshot) {
	ps.snapshots.Add(s.bytes() - p.snapshot.bytes())
	p.snapshot = s
}

// nextBackoff doubles the backoff while snapshots have the same mappings. It requires mmap records,
// which tell when there are new ones.
func (ps *Processes) nextBackoff(p *process, s *snapshot, wasStale bool) time.Duration {
	if wasStale || !ps.mmaps.hasAny() || !s.hasSameMappings(p.snapshot) {
		return 0
	}
	return min(max(2*p.backoff, refreshEvery), maxBackoff)
}

// minInterval returns the shortest time from the last snapshot to the next one. Snapshots of a
// process with many mappings take at most a tenth of the time. If the snapshot is stale, for
// example because it was taken during an exec, they take at most half of it.
func (p *process) minInterval() time.Duration {
	if p.stale.Load() {
		return p.readTime
	}
	return max(refreshEvery, 10*p.readTime, p.backoff)
}

// refresh takes a new snapshot if minInterval has passed, and reports whether it tried to. Even if
// that failed, the frame of an address can change: the process may have exited.
func (ps *Processes) refresh(p *process) bool {
	isFinal := p.failure == Exited && p.snapshot != nil && !p.stale.Load()
	if isFinal || ps.now().Before(p.readAt.Add(p.minInterval())) {
		return false
	}
	_ = ps.takeSnapshot(p, false)
	return true
}

// releaseSnapshot releases the modules and the root of a snapshot.
func (ps *Processes) releaseSnapshot(s *snapshot) {
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

// shareRoot opens the root directory of a process. Processes of a container share it.
func (ps *Processes) shareRoot(dir string) *root {
	r, err := openRoot(dir + "/root")
	if err != nil {
		return nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if existing := ps.roots[r.id]; existing != nil {
		r.dir.Close()
		r = existing
	}
	ps.roots[r.id] = r
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
		delete(ps.roots, r.id)
		r.dir.Close()
	}
}

// searchRoots lists the roots below which files are searched, for a process whose root is r.
func (ps *Processes) searchRoots(r *root) []*root {
	roots := make([]*root, 0, 2)
	if r != nil {
		roots = append(roots, r)
	}
	if ps.self != nil && (r == nil || r.id != ps.self.id) {
		roots = append(roots, ps.self)
	}
	return roots
}
