package seccompprofile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/value"
)

// profile is the set of system calls that a profile allows.
type profile struct {
	names    map[string]bool
	abis     map[value.ABI]bool
	unnamed  map[string]bool // numbers without a name
	runtime  []string        // calls of the container runtime
	observed bool
	file     *os.File // for the profile, or nil
	created  bool     // the file did not exist
}

// runtimeCalls returns what runc 1.1 and crun 1.8 call between the activation of the filter and the
// execve of the program, with and without no_new_privs. runc is a Go program: its threads schedule
// and collect garbage meanwhile. Later versions use close_range, openat2 and statx too.
func runtimeCalls() []string {
	return strings.Fields(`capget capset chdir clone clone3 close close_range epoll_ctl epoll_pwait execve exit
		exit_group faccessat faccessat2 fchown fcntl fstat fstatfs futex getcwd getdents64 getpid getppid gettid
		lseek madvise mmap mprotect munmap nanosleep newfstatat openat openat2 prctl read readlinkat
		restart_syscall rt_sigaction rt_sigprocmask rt_sigreturn sched_yield setgid setgroups setresgid
		setresuid setuid sigaltstack statx tgkill write`)
}

func newProfile() *profile {
	return &profile{names: map[string]bool{}, abis: map[value.ABI]bool{value.ABINative: true}, unnamed: map[string]bool{}}
}

func (p *profile) add(abi value.ABI, name string) {
	p.names[name], p.abis[abi] = true, true
}

// observe adds a call that was made.
func (p *profile) observe(abi value.ABI, name string) {
	p.observed = true
	if strings.HasPrefix(name, "[") {
		p.unnamed[name] = true
		return
	}
	p.add(abi, name)
}

// document is the profile as the OCI runtime specification defines it (linux.seccomp). Runtimes ignore
// the comment.
type document struct {
	DefaultAction string   `json:"defaultAction"`
	Architectures []string `json:"architectures"`
	Syscalls      []rule   `json:"syscalls"`
}

type rule struct {
	Names   []string `json:"names"`
	Action  string   `json:"action"`
	Comment string   `json:"comment,omitempty"`
}

// architectures returns the names of libseccomp for the ABIs, by architecture.
func architectures(arch string) map[value.ABI]string {
	if arch == "arm64" {
		return map[value.ABI]string{value.ABINative: "SCMP_ARCH_AARCH64", value.ABICompat: "SCMP_ARCH_ARM"}
	}
	return map[value.ABI]string{value.ABINative: "SCMP_ARCH_X86_64", value.ABICompat: "SCMP_ARCH_X86", value.ABIX32: "SCMP_ARCH_X32"}
}

// document returns the profile, for a run that has lost events.
func (p *profile) document(lost uint64) document {
	d := document{DefaultAction: "SCMP_ACT_ERRNO", Syscalls: []rule{{Names: slices.Sorted(maps.Keys(p.names)), Action: "SCMP_ACT_ALLOW"}}}
	all := architectures(runtime.GOARCH)
	for _, abi := range slices.Sorted(maps.Keys(p.abis)) {
		d.Architectures = append(d.Architectures, all[abi])
	}
	d.Syscalls[0].Comment = strings.Join(p.gaps(lost), "; ")
	others := slices.DeleteFunc(slices.Clone(p.runtime), func(name string) bool { return p.names[name] })
	if len(others) > 0 {
		d.Syscalls = append(d.Syscalls, rule{others, "SCMP_ACT_ALLOW", "not observed: runc and crun call these to start the program"})
	}
	return d
}

// gaps lists why the profile can be incomplete.
func (p *profile) gaps(lost uint64) (all []string) {
	if lost > 0 {
		all = append(all, fmt.Sprintf("incomplete: %d events were lost", lost))
	}
	if len(p.unnamed) > 0 {
		all = append(all, "incomplete: system calls without a name were made: "+strings.Join(slices.Sorted(maps.Keys(p.unnamed)), ", "))
	}
	return all
}

// errIncomplete is returned when the profile was written, but calls can be missing.
var errIncomplete = errors.New("the profile can be incomplete")

// open opens the file before the run, because the run drops capabilities.
func (p *profile) open(path string) (err error) {
	_, err = os.Lstat(path)
	p.created = errors.Is(err, fs.ErrNotExist)
	p.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	return err
}

// write writes the profile to the file, and closes it. If no call was observed, an existing file stays as
// it is.
func (p *profile) write(lost uint64) (err error) {
	f := p.file
	defer func() { err = errors.Join(err, f.Close()) }()
	if !p.observed {
		err := fmt.Errorf("write %s: no system call was observed", f.Name())
		if p.created {
			err = errors.Join(err, os.Remove(f.Name()))
		}
		return err
	}
	text, err := json.MarshalIndent(p.document(lost), "", "  ")
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.Write(append(text, '\n')); err != nil {
		return err
	}
	if gaps := p.gaps(lost); len(gaps) > 0 {
		return fmt.Errorf("%s: %w: %s", f.Name(), errIncomplete, strings.Join(gaps, "; "))
	}
	return nil
}
