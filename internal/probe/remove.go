package probe

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// RemoverName is the name of the process that removes probes, its first argument.
const RemoverName = "corescope-remove-probes"

// removedHere is how many single probes Detach removes itself. The kernel removes one after the other,
// holding a lock (event_mutex), and waits for RCU grace periods each time: 20 ms is usual.
const removedHere = 16

// removers is how many probes a process removes concurrently. Before the kernel takes the lock, it waits
// up to 0.2 s until no task runs the program (Linux 6.13 and later). More removers would not be faster,
// but whoever attaches a probe meanwhile would wait for the lock longer.
const removers = 32

// addSingle notes links that each attach to a single target. Those through tracefs are left out, which
// the library uses for returns, and in old kernels for names with a dot: it removes their definitions when
// they are closed.
func (o *Objects) addSingle(v Variant, t targetWithID, links []link.Link) {
	for _, name := range v.Programs {
		spec := o.spec.Programs[name]
		if isKernelReturn(spec) || spec.Type == ebpf.Kprobe && !isUser(spec) && strings.Contains(t.Name, ".") {
			return
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.single = append(o.single, links...)
}

// handOver passes the single probes on to a process that removes them, so that this one need not wait
// for that. Their programs do nothing any more, because "observing" is false. The caller holds o.mu.
func (o *Objects) handOver() {
	if !o.HandOver || len(o.single) <= removedHere || o.Variables["observing"] == nil {
		return
	}
	pid, err := startRemover(o.single)
	if err != nil {
		o.notify(fmt.Errorf("remove %d probes, which takes the kernel up to 0.2 s for each: cannot start another process for that: %w", len(o.single), err))
		return
	}
	o.notify(fmt.Errorf("process %d removes %d probes, which takes the kernel up to 0.2 s for each. They count nothing "+
		"any more, but slow the probed functions down until then", pid, len(o.single)))
}

// startRemover starts a process with the descriptors of the links. It belongs to no terminal, and keeps
// nothing else open.
func startRemover(links []link.Link) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	var fds []uintptr
	for _, l := range links {
		switch l := l.(type) {
		case interface{ FD() int }: // a BPF link, which keeps the perf event open
			fds = append(fds, uintptr(l.FD()))
		case link.PerfEvent:
			f, err := l.PerfEvent()
			if err != nil {
				return 0, err
			}
			defer f.Close()
			fds = append(fds, f.Fd())
		}
	}
	slices.Sort(fds) // so that no descriptor has to be duplicated
	standard := []uintptr{null.Fd(), null.Fd(), null.Fd()}
	return syscall.ForkExec("/proc/self/exe", []string{RemoverName}, &syscall.ProcAttr{
		Dir: "/", Files: append(standard, fds...), Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

// Remove removes the probes that this process has inherited, and returns its exit code.
func Remove() int {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 1 // the kernel closes the descriptors at the end of the process, one after the other
	}
	slots := make(chan struct{}, removers)
	var wg sync.WaitGroup
	for fd := 3; fd < 3+len(fds); fd++ {
		slots <- struct{}{}
		wg.Go(func() {
			// Others belong to the Go runtime.
			if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && isProbe(name) {
				_ = unix.Close(fd)
			}
			<-slots
		})
	}
	wg.Wait()
	return 0
}

func isProbe(name string) bool {
	return strings.HasPrefix(name, "anon_inode:") && (strings.Contains(name, "perf_event") || strings.Contains(name, "bpf"))
}
