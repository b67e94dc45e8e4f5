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
	// ErrNoVariant is returned for a hook or a kind of it that a tool does not have.
	ErrNoVariant = errors.New("the tool has no such hook")
	// ErrNotPermitted is returned when this process may not do what the tool needs.
	ErrNotPermitted = errors.New("not permitted")
	// ErrUnsupported is returned when this kernel has no way to a hook.
	ErrUnsupported = errors.New("this kernel has no way to it")
	// ErrNoBTF is returned when there is no description of the kernel's types. It is an
	// ErrUnsupported.
	ErrNoBTF = fmt.Errorf("%w: no BTF", ErrUnsupported)
	// ErrOtherBTF is returned for a BTF file that describes another kernel than the running one.
	ErrOtherBTF = errors.New("this BTF is not that of the running kernel, which has its own in /sys/kernel/btf/vmlinux")
)

// Attempt is how one variant fared: Err is nil for the one that was taken.
type Attempt struct {
	Variant Variant
	Err     error
	// Returns describes how programs are attached to the returns of user functions, if any are.
	Returns string
	// Targets are those of an instance that could be had.
	Targets []string
}

// HookError says why no variant of a hook could be had. It is ErrNotPermitted when a
// variant was refused for want of permission, as with it that one may work. It is
// neither when there was no memory or no descriptor for one. Else it is ErrUnsupported.
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

// Unwrap returns what kept the hook from being had, if it was no fault of the hook's: a
// want of memory or of descriptors.
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

// Is tells the two kinds apart. Who has CAP_SYS_ADMIN and is refused is refused by the
// kernel's configuration, which no permission mends.
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

// Classify makes an error of the kernel one of the two kinds, if it is one. The
// library's guesses at permissions are left out.
func Classify(err error) error {
	switch {
	case isDenied(err):
		return ErrNotPermitted
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// isDenied tells errors of permission. The verifier's EACCES is not one.
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
	reasonNotThere  = "not in this kernel"
	reasonLacksType = "not in this kernel: it lacks a type or field that this way reads"
)

// Reason is an error of loading or attaching in a few words.
func Reason(err error) string {
	var verifier *ebpf.VerifierError
	switch {
	case err == nil:
		return "works"
	case errors.As(err, &verifier) && strings.Contains(err.Error(), "bad CO-RE relocation"):
		return reasonLacksType
	case errors.As(err, &verifier):
		return fmt.Sprintf("refused by the verifier: %v", err)
	case errors.Is(err, fs.ErrPermission):
		return "not permitted"
	case errors.Is(err, unix.ENOMEM):
		return "out of memory"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "too many open files"
	case errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EOPNOTSUPP):
		return reasonNotThere
	case errors.Is(err, fs.ErrNotExist):
		return "not there"
	}
	return err.Error()
}
