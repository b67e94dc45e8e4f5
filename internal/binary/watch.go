package binary

import (
	"encoding/binary"
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

// Watch reports new executable mappings of all processes from PERF_RECORD_MMAP2 records, without a
// BPF program. The records are asynchronous: the process continues before they are read.
type Watch struct {
	// Exec, if set before Run, is called for each process that executes a new program, with the time
	// (CLOCK_MONOTONIC in ns) when its previous mappings had been removed.
	Exec func(pid uint32, at uint64)

	epoll, stop, sync int
	byCPU             map[int]*mmapRing
	hotplug           *system.Hotplug

	mu              sync.Mutex
	changed         sync.Cond // signals that done or hasEnded has changed
	requested, done int       // calls of Sync
	hasEnded        bool
}

// watchBytes is the size of a CPU's ring. It holds the mappings of about 50 programs that start.
// Lost records are reported, and the caller then scans all processes.
const watchBytes = 32 << 10

// NewWatch opens a ring for each online CPU. Call Run to read them.
func NewWatch() (*Watch, error) {
	w := &Watch{epoll: -1, stop: -1, sync: -1, byCPU: map[int]*mmapRing{}, hotplug: system.OpenHotplug()}
	w.changed.L = &w.mu
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

// add opens a ring for a CPU.
//
// Returns ENODEV if the CPU is offline.
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

// drop reads the rest of a CPU's ring, if it has one, and closes it.
func (w *Watch) drop(cpu int, yield func(*Mapped), missed func()) {
	r := w.byCPU[cpu]
	if r == nil {
		return
	}
	r.drain(yield, missed)
	_ = r.close() // also removes it from the epoll set
	delete(w.byCPU, cpu)
}

// addOnline opens rings for CPUs that have come online. The kernel disables the event of a CPU that
// goes offline; in suspend all CPUs but the first do. missed is called because mappings that were
// created on these CPUs before their rings were open are not in any ring. If CAP_PERFMON has been
// dropped, no ring can be opened and these calls of missed are the only notification.
func (w *Watch) addOnline(yield func(*Mapped), missed func()) {
	cpus := w.hotplug.Arrived(w.absent)
	for _, cpu := range cpus {
		w.drop(cpu, yield, missed)
		_ = w.add(cpu) // fails if the CPU is offline by now
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

// Indices of other file descriptors in the epoll set. The index of a ring is the number of its CPU.
const (
	stopIndex    = -1
	syncIndex    = -2
	hotplugIndex = -3
)

// possibleCPUs returns one more than the number of the last possible CPU.
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

// Run calls yield with each mapping, and missed if records were lost, until Stop is called.
func (w *Watch) Run(yield func(*Mapped), missed func()) error {
	defer w.update(func() { w.hasEnded = true })
	yieldMapping := yield
	yield = func(m *Mapped) {
		if m.Path != "" {
			yieldMapping(m)
		} else if w.Exec != nil {
			w.Exec(m.PID, m.Time)
		}
	}
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(w.epoll, events, w.hotplug.Timeout())
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for mappings: %w", err)
		}
		hotplug := n == 0 // timeout: without hotplug messages, CPUs are polled
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
			w.addOnline(yield, missed)
		}
	}
}

func (w *Watch) drainAll(yield func(*Mapped), missed func()) {
	_, _ = unix.Read(w.sync, make([]byte, 8))
	w.mu.Lock()
	requested := w.requested
	w.mu.Unlock()
	w.addOnline(yield, missed) // also for a CPU that has just come online
	for _, r := range w.byCPU {
		r.drain(yield, missed)
	}
	w.update(func() { w.done = requested })
}

// update changes done or hasEnded and wakes the callers of Sync.
func (w *Watch) update(set func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set()
	w.changed.Broadcast()
}

// Sync returns when Run has yielded all mappings that existed before the call, or has ended. It
// waits for Run to be called.
func (w *Watch) Sync() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requested++
	request := w.requested
	if _, err := unix.Write(w.sync, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return fmt.Errorf("request mappings: %w", err)
	}
	for w.done < request && !w.hasEnded {
		w.changed.Wait()
	}
	return nil
}

// Stop ends Run.
func (w *Watch) Stop() error {
	_, err := unix.Write(w.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	return err
}

// Close closes all file descriptors. Run must have ended, or must not have been called.
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

// mmapRing is a dummy perf event of one CPU that only records executable mappings.
type mmapRing struct {
	fd   int
	all  []byte // the metadata page and the ring
	page *unix.PerfEventMmapPage
}

func newMmapRing(cpu int) (*mmapRing, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample_type: unix.PERF_SAMPLE_TIME, Clockid: unix.CLOCK_MONOTONIC, Wakeup: 1,
		Bits: unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitCommExec |
			unix.PerfBitSampleIDAll | unix.PerfBitUseClockID | unix.PerfBitWatermark,
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

// drain reads all records in the ring.
func (r *mmapRing) drain(yield func(*Mapped), missed func()) {
	ring := r.all[r.page.Data_offset:][:r.page.Data_size]
	head := atomic.LoadUint64(&r.page.Data_head)
	for tail := r.page.Data_tail; tail < head; {
		header := copyFrom(ring, tail, recordHeader)
		size := uint64(le16(header[6:]))
		if size < recordHeader {
			tail = head
		} else if record := copyFrom(ring, tail, size); isExec(record) {
			yield(&Mapped{PID: binary.NativeEndian.Uint32(record[recordHeader:]), Time: timeOf(record)})
		} else if m, ok := parseRecord(record); ok {
			yield(&m)
		} else if isLost(header) {
			missed()
		}
		tail += size
		atomic.StoreUint64(&r.page.Data_tail, min(tail, head))
	}
}
