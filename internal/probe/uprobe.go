package probe

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
)

// useMulti makes programs of user space such that one link attaches them to all places of
// a file (6.6, 89ae89f53d20), where the kernel can: else each place takes a perf event.
func useMulti(spec *ebpf.CollectionSpec) {
	for _, prog := range spec.Programs {
		if _, ok := userPlace(prog.SectionName); ok && features.HaveBPFLinkUprobeMulti() == nil {
			prog.AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
}

// attachMulti attaches a program to all sites at once. The link is for all processes, as
// until 6.10 (46ba0e49b642) one for a process was for its first thread alone.
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
	if p.kind == "uretprobe" {
		attach = exe.UretprobeMulti
	}
	l, err := attach(nil, prog, o)
	if err != nil {
		return nil, err
	}
	return []link.Link{l}, nil
}

// attachEach attaches a program to each site, or to none.
func (u *user) attachEach(name string, p place, exe *link.Executable, sites []site) ([]link.Link, error) {
	var links []link.Link
	for _, s := range sites {
		l, err := u.attachOne(name, p, exe, s)
		if err != nil {
			closeAll(links)
			return nil, err
		}
		links = append(links, l)
	}
	return links, nil
}

func (u *user) attachOne(name string, p place, exe *link.Executable, s site) (link.Link, error) {
	prog, err := u.program(name, s.cookie)
	if err != nil {
		return nil, err
	}
	o := &link.UprobeOptions{Address: s.offset, RefCtrOffset: s.semaphore}
	if u.cookies() {
		o.Cookie = s.cookie
	}
	if p.kind == "uretprobe" {
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
	spec := u.objects.spec.Programs[name]
	if !asksCookie(spec) || u.cookies() {
		return u.objects.Program(name)
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
