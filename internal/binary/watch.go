package binary

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
)

// Watch reads perf's records of executable mappings as they are made, of all processes. That
// needs no program in the kernel. The process goes on meanwhile.
type Watch struct {
	epoll, stop, sync int
	byCPU             map[int]*mmapRing
	hotplug           *system.Hotplug

	mu          sync.Mutex
	told        sync.Cond // that done has changed
	asked, done int       // calls of Sync
	hasEnded    bool
}

// watchBytes is the size of a CPU's ring. It holds the mappings of some 50 programs that
// start; what is above is found by looking at all processes.
const watchBytes = 32 << 10

// NewWatch begins to listen.
func NewWatch() (*Watch, error) {
	w := &Watch{epoll: -1, stop: -1, sync: -1, byCPU: map[int]*mmapRing{}, hotplug: system.OpenHotplug()}
	w.told.L = &w.mu
	if err := w.open(); err != nil {
		w.Close()
		return nil, fmt.Errorf("watch mappings: %w", err)
	}
	return w, nil
}

func (w *Watch) open() (err error) {
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if w.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return err
	}
	if w.sync, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	if err := errors.Join(w.poll(w.stop, stopIndex), w.poll(w.sync, syncIndex)); err != nil {
		return err
	}
	if w.hotplug.Socket() >= 0 {
		if err := w.poll(w.hotplug.Socket(), hotplugIndex); err != nil {
			return err
		}
	}
	for cpu := range possibleCPUs() {
		if err := w.add(cpu); err != nil && !errors.Is(err, unix.ENODEV) { // offline
			return err
		}
	}
	return nil
}

// add gives a CPU a ring. Returns ENODEV for one that is offline.
func (w *Watch) add(cpu int) error {
	r, err := newMmapRing(cpu)
	if err != nil {
		return err
	}
	if err := w.poll(r.fd, cpu); err != nil {
		return errors.Join(err, r.close())
	}
	w.byCPU[cpu] = r
	return nil
}

// drop forgets the ring of a CPU, if there is one, when what it has is read.
func (w *Watch) drop(cpu int, yield func(*Mapped), missed func()) {
	r := w.byCPU[cpu]
	if r == nil {
		return
	}
	r.drain(yield, missed)
	_ = r.close() // which takes it out of the epoll set
	delete(w.byCPU, cpu)
}

// arrive gives the CPUs that have come online rings: the kernel ends that of a CPU that goes
// offline, as all but the first do in suspend. What was mapped there before is found by looking
// at all processes. Where the right to open an event is gone, that is all that can be done.
func (w *Watch) arrive(yield func(*Mapped), missed func()) {
	cpus := w.hotplug.Arrived(w.absent)
	for _, cpu := range cpus {
		w.drop(cpu, yield, missed)
		_ = w.add(cpu) // it may have gone again
	}
	if len(cpus) > 0 && w.hotplug.Socket() >= 0 {
		missed()
	}
}

// absent lists the CPUs without a ring.
func (w *Watch) absent() (cpus []int) {
	for cpu := range possibleCPUs() {
		if w.byCPU[cpu] == nil {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// What is waited for beside the CPUs' rings, which go by the CPUs' numbers.
const (
	stopIndex    = -1
	syncIndex    = -2
	hotplugIndex = -3
)

// possibleCPUs is one more than the number of the last CPU.
func possibleCPUs() int {
	n := runtime.NumCPU()
	text, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		return n
	}
	last := strings.TrimSpace(string(text))
	last = last[strings.LastIndexAny(last, "-,")+1:]
	var max int
	if _, err := fmt.Sscan(last, &max); err != nil {
		return n
	}
	return max + 1
}

func (w *Watch) poll(fd, index int) error {
	return unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)})
}

// Run calls yield with each mapping, and missed when some could not be told, until Stop.
func (w *Watch) Run(yield func(*Mapped), missed func()) error {
	defer w.tell(func() { w.hasEnded = true })
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(w.epoll, events, w.hotplug.Timeout())
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for mappings: %w", err)
		}
		hotplug := n == 0 // the time to try CPUs, where there are no messages
		for _, e := range events[:n] {
			switch {
			case e.Fd == stopIndex:
				return nil
			case e.Fd == syncIndex:
				w.drainAll(yield, missed)
			case e.Fd == hotplugIndex:
				hotplug = true
			case e.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0: // the CPU is offline
				w.drop(int(e.Fd), yield, missed)
			case w.byCPU[int(e.Fd)] != nil:
				w.byCPU[int(e.Fd)].drain(yield, missed)
			}
		}
		if hotplug {
			w.arrive(yield, missed)
		}
	}
}

func (w *Watch) drainAll(yield func(*Mapped), missed func()) {
	_, _ = unix.Read(w.sync, make([]byte, 8))
	w.mu.Lock()
	asked := w.asked
	w.mu.Unlock()
	w.arrive(yield, missed) // a CPU that has just come
	for _, r := range w.byCPU {
		r.drain(yield, missed)
	}
	w.tell(func() { w.done = asked })
}

func (w *Watch) tell(what func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	what()
	w.told.Broadcast()
}

// Sync returns when Run, which has been called or will be, has told all mappings that were
// made before, or has ended.
func (w *Watch) Sync() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	mine := w.asked
	if _, err := unix.Write(w.sync, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return fmt.Errorf("ask for mappings: %w", err)
	}
	for w.done < mine && !w.hasEnded {
		w.told.Wait()
	}
	return nil
}

// Stop ends Run.
func (w *Watch) Stop() error {
	_, err := unix.Write(w.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	return err
}

// Close frees all. Run has ended, or was never called.
func (w *Watch) Close() error {
	var errs []error
	errs = append(errs, w.hotplug.Close())
	for _, r := range w.byCPU {
		errs = append(errs, r.close())
	}
	for _, fd := range []int{w.epoll, w.stop, w.sync} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// mmapRing is a CPU's event that does nothing but record executable mappings.
type mmapRing struct {
	fd   int
	all  []byte // the page with the positions, and the ring
	page *unix.PerfEventMmapPage
}

func newMmapRing(cpu int) (*mmapRing, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Bits: unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitWatermark, Wakeup: 1,
	}
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open perf event: %w", err)
	}
	all, err := unix.Mmap(fd, 0, os.Getpagesize()+watchBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("map perf buffer: %w", err)
	}
	return &mmapRing{fd, all, (*unix.PerfEventMmapPage)(unsafe.Pointer(&all[0]))}, nil
}

func (r *mmapRing) close() error { return errors.Join(unix.Munmap(r.all), unix.Close(r.fd)) }

// drain reads all records there are.
func (r *mmapRing) drain(yield func(*Mapped), missed func()) {
	ring := r.all[r.page.Data_offset:][:r.page.Data_size]
	head := atomic.LoadUint64(&r.page.Data_head)
	for tail := r.page.Data_tail; tail < head; {
		header := copyFrom(ring, tail, recordHeader)
		size := uint64(le16(header[6:]))
		if size < recordHeader {
			tail = head
		} else if m, ok := parseRecord(copyFrom(ring, tail, size)); ok {
			yield(&m)
		} else if isLost(header) {
			missed()
		}
		tail += size
		atomic.StoreUint64(&r.page.Data_tail, min(tail, head))
	}
}
