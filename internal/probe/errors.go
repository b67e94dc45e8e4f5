package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

var (
	// ErrNoVariant is returned for a hook, or an attach type of a hook, that the tool does not
	// have.
	ErrNoVariant = errors.New("no such hook or attach type")
	// ErrNotPermitted is returned if this process lacks a permission that the tool needs.
	ErrNotPermitted = errors.New("not permitted")
	// ErrUnsupported is returned if the kernel supports no attach type of a hook.
	ErrUnsupported = errors.New("not supported by this kernel")
	// ErrNoBTF is returned if no BTF of the kernel is available. It wraps ErrUnsupported.
	ErrNoBTF = fmt.Errorf("%w: no BTF", ErrUnsupported)
	// ErrOtherBTF is returned for a BTF file that does not describe the running kernel.
	ErrOtherBTF = errors.New("not the BTF of the running kernel, which is in /sys/kernel/btf/vmlinux")
)

// Attempt is the result of attaching one variant of a hook. Err is nil if it was attached.
type Attempt struct {
	Variant Variant
	Err     error
	// Returns describes how programs are attached to the returns of user functions, if any are.
	Returns string
	// Targets are the targets of an instance that were attached.
	Targets []string
}

// HookError reports that no variant of a hook could be attached, with the error of each.
//
// It is ErrNotPermitted if a variant failed because of a missing permission: it might work with
// that permission. It is neither ErrNotPermitted nor ErrUnsupported if memory or file descriptors
// ran out. Otherwise it is ErrUnsupported.
type HookError struct {
	Hook  string
	Tried []Attempt
}

func (e *HookError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "attach hook %s:", e.Hook)
	for i, a := range e.Tried {
		if i > 0 {
			b.WriteByte(';')
		}
		fmt.Fprintf(&b, " %s: %s", a.Variant, Reason(a.Err))
	}
	return b.String()
}

// Unwrap returns ENOMEM, EMFILE or ENFILE if an attempt failed with it, otherwise nil.
func (e *HookError) Unwrap() []error {
	for _, a := range e.Tried {
		for _, errno := range []error{unix.ENOMEM, unix.EMFILE, unix.ENFILE} {
			if errors.Is(a.Err, errno) {
				return []error{errno}
			}
		}
	}
	return nil
}

// Is implements the rule that is described at HookError. A permission error of a process with
// CAP_SYS_ADMIN counts as unsupported: the kernel's configuration causes it, and no further
// capability helps.
func (e *HookError) Is(target error) bool {
	denied := !isAdmin() && slices.ContainsFunc(e.Tried, func(a Attempt) bool { return isDenied(a.Err) })
	switch target {
	case ErrNotPermitted:
		return denied
	case ErrUnsupported:
		return !denied && e.Unwrap() == nil
	}
	return false
}

// Classify converts a permission error to ErrNotPermitted, without the guesses of the library about
// the missing permission, and wraps ebpf.ErrNotSupported with ErrUnsupported. It returns other
// errors unchanged.
func Classify(err error) error {
	switch {
	case isDenied(err):
		return ErrNotPermitted
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// isDenied reports whether err is a permission error. EACCES from the verifier is not.
func isDenied(err error) bool {
	var verifier *ebpf.VerifierError
	return errors.Is(err, fs.ErrPermission) && !errors.As(err, &verifier)
}

func isAdmin() bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return os.Geteuid() == 0
	}
	return sets[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

const (
	reasonUnsupported = "not supported by this kernel"
	reasonNoType      = "not supported by this kernel: a type or field that the program reads does not exist"
)

// Reason describes an error of loading or attaching in a few words.
func Reason(err error) string {
	var verifier *ebpf.VerifierError
	switch {
	case err == nil:
		return "works"
	case errors.As(err, &verifier) && strings.Contains(err.Error(), "bad CO-RE relocation"):
		return reasonNoType
	case errors.As(err, &verifier) && strings.Contains(err.Error(), "type STRUCT is unsupported"):
		return reasonUnsupported // fentry of a function with a structure as argument, before 6.1
	case errors.As(err, &verifier):
		return fmt.Sprintf("refused by the verifier: %v", err)
	case errors.Is(err, fs.ErrPermission):
		return "not permitted"
	case errors.Is(err, unix.ENOMEM):
		return "out of memory"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "too many open files"
	case errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EOPNOTSUPP):
		return reasonUnsupported
	case errors.Is(err, fs.ErrNotExist):
		return "attach point does not exist"
	}
	return err.Error()
}
