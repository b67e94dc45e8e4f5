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

// useMulti makes programs of user space such that one link attaches them to all places of
// a file (6.6, 89ae89f53d20), where the kernel can: else each place takes a perf event. So
// does one in the files of single processes, where a link for a process may be for its first
// thread alone.
func useMulti(spec *ebpf.CollectionSpec, o *Options) {
	for _, prog := range spec.Programs {
		p, ok := userPlace(prog.SectionName)
		if ok && (!o.Files[p.files].Alone || multiKnowsProcesses(o.Kernel)) && features.HaveBPFLinkUprobeMulti() == nil {
			prog.AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
}

// multiKnowsProcesses tells whether a link for a process is for all its threads: since 6.10
// (46ba0e49b642), which does not show; but it does that sessions are there, from 6.13 on.
func multiKnowsProcesses(kernel *Kernel) bool {
	var types *btf.Enum
	return kernel.TypeByName("bpf_attach_type", &types) == nil &&
		slices.ContainsFunc(types.Values, func(v btf.EnumValue) bool { return v.Name == "BPF_TRACE_UPROBE_SESSION" })
}

// attachMulti attaches a program to all sites at once, by a link for each process.
func (u *user) attachMulti(name string, p place, exe *link.Executable, sites []site) ([]link.Link, error) {
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
	var links []link.Link
	for _, pid := range u.names[p.files].want.Processes() {
		o.PID = 0
		if u.owner(pid) == int(pid) { // else its first thread has ended, and no link is for the others
			o.PID = pid
		}
		l, err := attach(nil, prog, o)
		if err != nil {
			closeAll(links)
			return nil, err
		}
		links = append(links, l)
	}
	return links, nil
}

// attachEach attaches a program to each site for each process, or to none.
func (u *user) attachEach(name string, p place, exe *link.Executable, sites []site) ([]link.Link, error) {
	var links []link.Link
	want := u.names[p.files].want
	for _, s := range sites {
		for _, pid := range want.Processes() {
			l, err := u.attachOne(name, p, exe, s, u.owner(pid))
			if err != nil {
				closeAll(links)
				return nil, err
			}
			links = append(links, l)
		}
	}
	return links, nil
}

// owner is the thread that programs are attached for.
func (u *user) owner(pid uint32) int {
	tid := mmOwner(pid)
	if pid != 0 {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.owners[pid] = tid
	}
	return tid
}

func (u *user) attachOne(name string, p place, exe *link.Executable, s site, pid int) (link.Link, error) {
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

// program loads the program that is for a cookie. Where the kernel has no cookies, that is
// one in which the cookie stands in place of the helper's call.
func (u *user) program(name string, cookie uint64) (*ebpf.Program, error) {
	own, number, _ := strings.Cut(name, forForm)
	spec := u.objects.spec.Programs[own]
	if f, err := strconv.Atoi(number); err == nil {
		spec = withForm(spec, form(f))
	}
	if !asksCookie(spec) || u.cookies() {
		return u.objects.load(name, spec)
	}
	if cookie > math.MaxInt32 {
		return nil, fmt.Errorf("load %s: cookie %d: %w", spec.SectionName, cookie, ebpf.ErrNotSupported)
	}
	return u.objects.load(fmt.Sprintf("%s%s%d", name, forCookie, cookie), withCookie(spec, int32(cookie)))
}

// forCookie ends a program's name ahead of its cookie's number.
const forCookie = "__cookie"

func isCookieCall(ins asm.Instruction) bool {
	return ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnGetAttachCookie
}

func asksCookie(spec *ebpf.ProgramSpec) bool {
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

// closeTogether closes links side by side: of each perf event in user space the kernel
// waits until nobody runs it, which takes up to 0.2 s (6.13 and later).
func closeTogether(links []link.Link) error {
	const atOnce = 64
	errs := make([]error, len(links))
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
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
