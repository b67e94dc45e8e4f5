package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// refused is the verifier's own EACCES.
var refused = &ebpf.VerifierError{Cause: unix.EACCES, Log: []string{"R1 invalid mem access 'scalar'"}}

func TestReason(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, "works"},
		{fmt.Errorf("load x: %w", refused), "refused by the verifier: "},
		{fmt.Errorf("attach x: %w", unix.EPERM), "not permitted"},
		{fmt.Errorf("attach x: %w", unix.EACCES), "not permitted"},
		{fmt.Errorf("load x: %w", &ebpf.VerifierError{Cause: errors.New("bad CO-RE relocation")}), "not in this kernel: it lacks"},
		{fmt.Errorf("load x: %w", ebpf.ErrNotSupported), "not in this kernel"},
		{fmt.Errorf("attach x: %w", unix.EOPNOTSUPP), "not in this kernel"},
		{fmt.Errorf("attach x: %w", fs.ErrNotExist), "not there"},
		{fmt.Errorf("attach x: %w", unix.ENOENT), "not there"},
		{errors.New("odd"), "odd"},
	} {
		if got := Reason(tt.err); !strings.HasPrefix(got, tt.want) || strings.Contains(got, "\n") {
			t.Errorf("%v is %q, want %q", tt.err, got, tt.want)
		}
	}
	if got := Reason(refused); !strings.Contains(got, "invalid mem access") {
		t.Errorf("the verifier's words are missing: %s", got)
	}
}

func attempts(errs ...error) *HookError {
	e := &HookError{Hook: "open"}
	for i, err := range errs {
		e.Tried = append(e.Tried, Attempt{Variant: Variant{Where: []string{fmt.Sprintf("way/%d", i)}}, Err: err})
	}
	return e
}

func TestHookErrorSaysAllWays(t *testing.T) {
	got := attempts(ebpf.ErrNotSupported, unix.ENOENT, unix.EPERM).Error()
	want := "attach hook open: way/0: not in this kernel; way/1: not there; way/2: not permitted"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// withoutAdmin calls f on a thread that has lost CAP_SYS_ADMIN, which ends with it.
func withoutAdmin(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		err := unix.Capget(&head, &sets[0])
		if err == nil {
			sets[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
			err = unix.Capset(&head, &sets[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestHookErrorKinds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    *HookError
		denied bool // for who is not allowed everything
	}{
		{"all denied", attempts(unix.EPERM, fs.ErrPermission), true},
		{"denied but for what is not there", attempts(ebpf.ErrNotSupported, unix.EACCES), true},
		{"nothing there", attempts(ebpf.ErrNotSupported, unix.ENOENT), false},
		{"verifier", attempts(refused), false},
		{"nothing tried", attempts(), false},
	} {
		check := func(who string, denied bool) {
			wrapped := fmt.Errorf("start: %w", tt.err)
			if errors.Is(wrapped, ErrNotPermitted) != denied || errors.Is(wrapped, ErrUnsupported) == denied {
				t.Errorf("%s, %s: not permitted %v, unsupported %v", tt.name, who, errors.Is(wrapped, ErrNotPermitted), errors.Is(wrapped, ErrUnsupported))
			}
			if errors.Is(wrapped, ErrNoVariant) {
				t.Errorf("%s is %v", tt.name, ErrNoVariant)
			}
		}
		withoutAdmin(t, func() { check("without capabilities", tt.denied) })
		if isAdmin() {
			check("as administrator", false)
		}
	}
}

func TestClassify(t *testing.T) {
	odd := errors.New("odd")
	for _, tt := range []struct{ err, want error }{
		{unix.EPERM, ErrNotPermitted},
		{fmt.Errorf("make: %w", unix.EACCES), ErrNotPermitted},
		{fmt.Errorf("make: %w", ebpf.ErrNotSupported), ErrUnsupported},
		{fmt.Errorf("make: %w", ebpf.ErrNotSupported), ebpf.ErrNotSupported},
		{refused, refused},
		{odd, odd},
	} {
		if got := Classify(tt.err); !errors.Is(got, tt.want) {
			t.Errorf("%v is %v, want %v", tt.err, got, tt.want)
		}
	}
	if errors.Is(Classify(refused), ErrNotPermitted) {
		t.Error("the verifier's word is taken for one of permission")
	}
}
