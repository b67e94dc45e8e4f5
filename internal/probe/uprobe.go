package probe

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
)

// useMulti makes programs in user space use one link for all sites in a file, if the kernel
// supports it (uprobe_multi, Linux 6.6, 89ae89f53d20). Otherwise each site needs a perf event. Perf
// events are also used for single processes, if a link for a process traces only its first thread.
func useMulti(spec *ebpf.CollectionSpec, o *Options) {
	for _, prog := range spec.Programs {
		p, ok := parseUserSection(prog.SectionName)
		if ok && (!o.Files[p.files].Alone || multiCoversThreads(o.Kernel)) && features.HaveBPFLinkUprobeMulti() == nil {
			prog.AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
}

// multiCoversThreads reports whether a uprobe_multi link for a process applies to all of its
// threads. That is the case since Linux 6.10 (46ba0e49b642), which cannot be probed for. Sessions
// can: they exist since 6.13.
func multiCoversThreads(kernel *Kernel) bool {
	var types *btf.Enum
	return kernel.TypeByName("bpf_attach_type", &types) == nil &&
		slices.ContainsFunc(types.Values, func(v btf.EnumValue) bool { return v.Name == "BPF_TRACE_UPROBE_SESSION" })
}

// attachMulti attaches a program to all sites with one link for each process.
func (u *user) attachMulti(name string, p userSection, exe *link.Executable, sites []site) ([]link.Link, error) {
	prog, err := u.program(name, 0)
	if err != nil {
		return nil, err
	}
	o := &link.UprobeMultiOptions{}
	for _, s := range sites {
		o.Addresses = append(o.Addresses, s.offset)
		o.RefCtrOffsets = append(o.RefCtrOffsets, s.semaphore)
		o.Cookies = append(o.Cookies, s.cookie)
	}
	attach := exe.UprobeMulti
	if p.kind == "uretprobe" && sites[0].form == afterReturn {
		attach = exe.UretprobeMulti
	}
	return u.eachProcess(p, func(pid uint32) ([]link.Link, error) {
		o.PID = 0
		if u.owner(pid) == int(pid) { // a link for a process whose first thread has exited traces nothing
			o.PID = pid
		}
		l, err := attach(nil, prog, o)
		if err != nil {
			return nil, err
		}
		return []link.Link{l}, nil
	})
}

// attachEach attaches a program to each site for each process. After an error it is attached to
// none.
func (u *user) attachEach(name string, p userSection, exe *link.Executable, sites []site) ([]link.Link, error) {
	return u.eachProcess(p, func(pid uint32) (links []link.Link, err error) {
		for _, s := range sites {
			l, err := u.attachOne(name, p, exe, s, u.owner(pid))
			if err != nil {
				return nil, errors.Join(err, closeAll(links))
			}
			links = append(links, l)
		}
		return links, nil
	})
}

// owner returns the thread that programs are attached for, and records it.
func (u *user) owner(pid uint32) int {
	tid := memoryOwner(pid)
	if pid != 0 {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.owners[pid] = tid
	}
	return tid
}

func (u *user) attachOne(name string, p userSection, exe *link.Executable, s site, pid int) (link.Link, error) {
	prog, err := u.program(name, s.cookie)
	if err != nil {
		return nil, err
	}
	o := &link.UprobeOptions{Address: s.offset, RefCtrOffset: s.semaphore, PID: pid}
	if u.cookies() {
		o.Cookie = s.cookie
	}
	if p.kind == "uretprobe" && s.form == afterReturn {
		return exe.Uretprobe("", prog, o)
	}
	return exe.Uprobe("", prog, o)
}

func haveCookies() bool {
	return features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie) == nil
}

// program loads the program for a cookie. Without attach cookies, that is a copy of the program in
// which the helper call is replaced by the cookie.
func (u *user) program(name string, cookie uint64) (*ebpf.Program, error) {
	base, number, _ := strings.Cut(name, formSeparator)
	spec := u.objects.spec.Programs[base]
	if f, err := strconv.Atoi(number); err == nil {
		spec = withForm(spec, form(f))
	}
	if !usesCookie(spec) || u.cookies() {
		return u.objects.load(name, spec)
	}
	if cookie > math.MaxInt32 {
		return nil, fmt.Errorf("load %s: cookie %d: %w", spec.SectionName, cookie, ebpf.ErrNotSupported)
	}
	return u.objects.load(fmt.Sprintf("%s%s%d", name, cookieSeparator, cookie), withCookie(spec, int32(cookie)))
}

// cookieSeparator is between the name of a program and the cookie.
const cookieSeparator = "__cookie"

func isCookieCall(ins asm.Instruction) bool {
	return ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnGetAttachCookie
}

func usesCookie(spec *ebpf.ProgramSpec) bool {
	return slices.ContainsFunc(spec.Instructions, isCookieCall)
}

func withCookie(spec *ebpf.ProgramSpec, cookie int32) *ebpf.ProgramSpec {
	spec = spec.Copy()
	for i, ins := range spec.Instructions {
		if isCookieCall(ins) {
			constant := asm.Mov.Imm(asm.R0, cookie)
			constant.Metadata = ins.Metadata
			spec.Instructions[i] = constant
		}
	}
	return spec
}

// closeTogether closes links concurrently: closing a perf event in user space waits until no task
// runs the probe, which takes up to 0.2 s (Linux 6.13 and later).
func closeTogether(links []link.Link) error {
	const concurrent = 64
	errs := make([]error, len(links))
	var wg sync.WaitGroup
	slots := make(chan struct{}, concurrent)
	for i, l := range links {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = l.Close()
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
