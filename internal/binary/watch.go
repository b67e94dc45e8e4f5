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
)

// Watch hears of executable mappings as they are made, by all processes: perf's own
// records of them, which need no program in the kernel. The process goes on meanwhile.
type Watch struct {
	epoll, stop, sync int
	cpus              []*mmapRing

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
	w := &Watch{epoll: -1, stop: -1, sync: -1}
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
	for cpu := range possibleCPUs() {
		r, err := newMmapRing(cpu)
		if errors.Is(err, unix.ENODEV) { // offline
			continue
		}
		if err != nil {
			return err
		}
		w.cpus = append(w.cpus, r)
		if err := w.poll(r.fd, len(w.cpus)-1); err != nil {
			return err
		}
	}
	return nil
}

// What is waited for beside the CPUs' rings.
const (
	stopIndex = -1
	syncIndex = -2
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
		n, err := unix.EpollWait(w.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for mappings: %w", err)
		}
		for _, e := range events[:n] {
			switch e.Fd {
			case stopIndex:
				return nil
			case syncIndex:
				w.drainAll(yield, missed)
			default:
				w.cpus[e.Fd].drain(yield, missed)
			}
		}
	}
}

func (w *Watch) drainAll(yield func(*Mapped), missed func()) {
	_, _ = unix.Read(w.sync, make([]byte, 8))
	w.mu.Lock()
	asked := w.asked
	w.mu.Unlock()
	for _, r := range w.cpus {
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
	for _, r := range w.cpus {
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
