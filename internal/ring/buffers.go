package ring

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
)

// perfBuffers are the perf buffers of all online CPUs. The key in the map is the number of the CPU;
// the numbers need not be contiguous.
//
// The kernel ends the buffer of a CPU that goes offline, and a CPU that comes online has none.
// Until drain opens one, events of that CPU are lost and counted by their program.
type perfBuffers struct {
	events *ebpf.Map
	bytes  int      // size of each buffer
	woken  *os.File // an eventfd; as a File, because Stop can write to it after Close
	wakeFD int
	cpus   *system.Hotplug

	closed atomic.Bool
	mu     sync.Mutex // held by wait and drain
	byCPU  map[int]*perfBuffer
}

// newPerfBuffers creates the buffers of all online CPUs. Each has an equal share of bytes, divided
// by the number of possible CPUs: the array has an entry for each of them, independent of the CPU
// affinity of this process.
func newPerfBuffers(events *ebpf.Map, bytes int) (*perfBuffers, error) {
	if bytes <= 0 {
		return nil, errors.New("create perf buffers: the size is 0")
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	b := &perfBuffers{
		events: events, bytes: powerOfTwo(bytes / int(events.MaxEntries())), woken: os.NewFile(uintptr(fd), "eventfd"), wakeFD: fd,
		cpus: system.OpenHotplug(), byCPU: map[int]*perfBuffer{},
	}
	for cpu := range int(events.MaxEntries()) {
		if err := b.open(cpu); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

// powerOfTwo rounds up to a valid buffer size: a power of two of pages.
func powerOfTwo(bytes int) int {
	size := os.Getpagesize()
	for size < bytes {
		size <<= 1
	}
	return size
}

// open opens a buffer for the CPU if it is online.
func (b *perfBuffers) open(cpu int) error {
	buf, err := newPerfBuffer(cpu, b.bytes)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := b.events.Put(uint32(cpu), uint32(buf.fd)); err != nil {
		buf.Close()
		return fmt.Errorf("set perf buffer of CPU %d: %w", cpu, err)
	}
	b.byCPU[cpu] = buf
	return nil
}

func (b *perfBuffers) wait() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return os.ErrClosed
	}
	fds := []unix.PollFd{{Fd: int32(b.wakeFD), Events: unix.POLLIN}}
	if b.cpus.Socket() >= 0 {
		fds = append(fds, unix.PollFd{Fd: int32(b.cpus.Socket()), Events: unix.POLLIN})
	}
	others := len(fds)
	var polled []*perfBuffer
	for _, buf := range b.byCPU {
		if !buf.offline {
			fds = append(fds, unix.PollFd{Fd: int32(buf.fd), Events: unix.POLLIN})
			polled = append(polled, buf)
		}
	}
	timeout := int(pollIdle.Milliseconds())
	if t := b.cpus.Timeout(); t >= 0 {
		timeout = min(timeout, t)
	}
	if _, err := unix.Poll(fds, timeout); err != nil && err != unix.EINTR {
		return fmt.Errorf("wait for perf buffers: %w", err)
	}
	for i, buf := range polled {
		buf.offline = fds[others+i].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	}
	unix.Read(b.wakeFD, make([]byte, 8))
	return nil
}

// drain opens buffers for CPUs that have come online, and reads the previous buffers of these CPUs
// to their ends.
func (b *perfBuffers) drain(yield func(sample []byte)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return os.ErrClosed
	}
	for _, cpu := range b.cpus.Arrived(b.missing) {
		old := b.byCPU[cpu]
		if err := b.open(cpu); errors.Is(err, fs.ErrPermission) {
			continue // capabilities were dropped: events of the CPU are counted as lost
		} else if err != nil {
			return err
		}
		if old != nil && old != b.byCPU[cpu] {
			old.drain(yield)
			old.Close()
		}
	}
	for _, buf := range b.byCPU {
		buf.drain(yield)
	}
	return nil
}

// missing lists the CPUs without a buffer.
func (b *perfBuffers) missing() (cpus []int) {
	for cpu := range int(b.events.MaxEntries()) {
		if b.byCPU[cpu] == nil {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

func (b *perfBuffers) wake() error {
	if _, err := b.woken.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("wake reader: %w", err)
	}
	return nil
}

func (b *perfBuffers) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	b.wake() // wait holds the lock
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := []error{b.woken.Close(), b.cpus.Close()}
	for _, buf := range b.byCPU {
		errs = append(errs, buf.Close())
	}
	return errors.Join(errs...)
}
