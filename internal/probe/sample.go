package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
)

// Sampling defines when programs of perf events run: at regular times of each CPU's clock
// (PERF_COUNT_SW_CPU_CLOCK), which also runs while the CPU is idle.
type Sampling struct {
	// Frequency is in Hz. Period is in ns; if it is set, Frequency is ignored.
	Frequency, Period uint64
	// CPUs are the CPUs to sample, all if empty.
	CPUs []int
	// Hardware maps hooks to events of hardware counters (PERF_COUNT_HW_*), which replace the clock.
	Hardware map[string]uint64
}

// PerSecond returns the maximum number of samples per second of all CPUs together, 0 without
// sampling.
func (s Sampling) PerSecond() uint64 {
	cpus := uint64(len(s.CPUs))
	if cpus == 0 {
		cpus = uint64(ebpf.MustPossibleCPU())
	}
	if s.Period > 0 {
		return cpus * (uint64(time.Second)/s.Period + 1)
	}
	return cpus * s.Frequency
}

// sampler runs a program by a perf event on each CPU. If a CPU goes offline, the kernel removes its
// event. When it comes online again, a new event is opened.
type sampler struct {
	link.Link // nil: only Close and Info are called
	sampling  Sampling
	attr      unix.PerfEventAttr
	prog      *ebpf.Program
	events    map[int]int // descriptors by CPU
	cpus      *system.Hotplug
	stop      int // an eventfd
	done      chan struct{}
}

// Info returns an error, because perf events are not BPF links.
func (s *sampler) Info() (*link.Info, error) { return nil, ebpf.ErrNotSupported }

// newSampler runs the program of a hook. guarded is Objects.Guarded.
func newSampler(prog *ebpf.Program, hook string, s Sampling, guarded func(func()) func()) (*sampler, error) {
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	p := &sampler{sampling: s, attr: s.attr(hook), prog: prog, events: map[int]int{}, cpus: system.OpenHotplug(), stop: stop, done: make(chan struct{})}
	if err := p.open(); err != nil {
		close(p.done)
		return nil, errors.Join(err, p.Close())
	}
	go guarded(p.follow)()
	return p, nil
}

// attr returns the perf event of a hook.
func (s Sampling) attr(hook string) unix.PerfEventAttr {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: s.Period,
	}
	if event, ok := s.Hardware[hook]; ok {
		attr.Type, attr.Config = unix.PERF_TYPE_HARDWARE, event
	}
	if attr.Sample == 0 {
		attr.Sample, attr.Bits = s.Frequency, unix.PerfBitFreq
	}
	return attr
}

func (p *sampler) open() error {
	for _, cpu := range p.wanted() {
		err := p.add(cpu)
		if errors.Is(err, unix.ENODEV) && len(p.sampling.CPUs) == 0 { // offline
			continue
		}
		if err != nil {
			return fmt.Errorf("sample CPU %d: %w", cpu, err)
		}
	}
	return nil
}

// wanted returns the CPUs to sample, including those that are offline.
func (p *sampler) wanted() []int {
	if len(p.sampling.CPUs) > 0 {
		return p.sampling.CPUs
	}
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return nil
	}
	all := make([]int, n)
	for cpu := range all {
		all[cpu] = cpu
	}
	return all
}

func (p *sampler) add(cpu int) error {
	fd, err := unix.PerfEventOpen(&p.attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if isHardware := p.attr.Type == unix.PERF_TYPE_HARDWARE; isHardware && (err == unix.ENOENT || err == unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: this machine has no hardware counter (PMU) for the event, as most virtual machines", ErrUnsupported)
	}
	if err != nil {
		return fmt.Errorf("open perf event: %w", err)
	}
	if err := start(fd, p.prog); err != nil {
		unix.Close(fd)
		return err
	}
	if old, ok := p.events[cpu]; ok {
		unix.Close(old)
	}
	p.events[cpu] = fd
	return nil
}

func start(fd int, prog *ebpf.Program) error {
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, prog.FD()); err != nil {
		return fmt.Errorf("attach to perf event: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return fmt.Errorf("enable perf event: %w", err)
	}
	return nil
}

// follow opens events for CPUs that come online, until Close. It ignores errors: the capabilities
// for it may have been dropped.
func (p *sampler) follow() {
	defer close(p.done)
	fds := []unix.PollFd{{Fd: int32(p.stop), Events: unix.POLLIN}}
	if p.cpus.Socket() >= 0 {
		fds = append(fds, unix.PollFd{Fd: int32(p.cpus.Socket()), Events: unix.POLLIN})
	}
	for {
		_, err := unix.Poll(fds, p.cpus.Timeout())
		if err != nil && err != unix.EINTR || fds[0].Revents != 0 {
			return
		}
		for _, cpu := range p.cpus.Arrived(p.missing) {
			if p.isWanted(cpu) {
				_ = p.add(cpu)
			}
		}
	}
}

func (p *sampler) isWanted(cpu int) bool {
	return slices.Contains(p.wanted(), cpu)
}

func (p *sampler) missing() (cpus []int) {
	for _, cpu := range p.wanted() {
		if _, ok := p.events[cpu]; !ok {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// Close closes the events. The program does not run any more when it returns.
func (p *sampler) Close() error {
	if p.events == nil {
		return fs.ErrClosed
	}
	_, err := unix.Write(p.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	if err == nil {
		<-p.done
	}
	errs := []error{err, unix.Close(p.stop), p.cpus.Close()}
	for _, fd := range p.events {
		errs = append(errs, unix.Close(fd))
	}
	p.events = nil
	return errors.Join(errs...)
}
