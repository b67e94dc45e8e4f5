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

// rejected is an error of the verifier that wraps EACCES.
var rejected = &ebpf.VerifierError{Cause: unix.EACCES, Log: []string{"R1 invalid mem access 'scalar'"}}

func TestReason(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, "works"},
		{fmt.Errorf("load x: %w", rejected), "refused by the verifier: "},
		{fmt.Errorf("attach x: %w", unix.EPERM), "not permitted"},
		{fmt.Errorf("attach x: %w", unix.EACCES), "not permitted"},
		{fmt.Errorf("load x: %w", &ebpf.VerifierError{Cause: errors.New("bad CO-RE relocation")}), "not supported by this kernel: a type or field"},
		{&ebpf.VerifierError{Cause: unix.EINVAL, Log: []string{"The function tcp_setsockopt arg3 type STRUCT is unsupported."}}, "not supported by this kernel"},
		{fmt.Errorf("load x: %w", ebpf.ErrNotSupported), "not supported by this kernel"},
		{fmt.Errorf("attach x: %w", unix.EOPNOTSUPP), "not supported by this kernel"},
		{fmt.Errorf("attach x: %w", fs.ErrNotExist), "attach point does not exist"},
		{fmt.Errorf("attach x: %w", unix.ENOENT), "attach point does not exist"},
		{errors.New("odd"), "odd"},
	} {
		if got := Reason(tt.err); !strings.HasPrefix(got, tt.want) || strings.Contains(got, "\n") {
			t.Errorf("reason of %v: %q, want prefix %q", tt.err, got, tt.want)
		}
	}
	if got := Reason(rejected); !strings.Contains(got, "invalid mem access") {
		t.Errorf("message of the verifier is missing: %s", got)
	}
}

func attempts(errs ...error) *HookError {
	e := &HookError{Hook: "open"}
	for i, err := range errs {
		e.Tried = append(e.Tried, Attempt{Variant: Variant{Where: []string{fmt.Sprintf("section/%d", i)}}, Err: err})
	}
	return e
}

func TestHookErrorText(t *testing.T) {
	got := attempts(ebpf.ErrNotSupported, unix.ENOENT, unix.EPERM).Error()
	want := "attach hook open: section/0: not supported by this kernel; section/1: attach point does not exist; section/2: not permitted"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// withoutAdmin calls f on a thread without CAP_SYS_ADMIN. The thread exits afterwards.
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

func TestHookErrorIs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    *HookError
		denied bool // for a process without CAP_SYS_ADMIN
	}{
		{"all denied", attempts(unix.EPERM, fs.ErrPermission), true},
		{"denied and unsupported", attempts(ebpf.ErrNotSupported, unix.EACCES), true},
		{"unsupported", attempts(ebpf.ErrNotSupported, unix.ENOENT), false},
		{"verifier", attempts(rejected), false},
		{"nothing tried", attempts(), false},
	} {
		check := func(who string, denied bool) {
			wrapped := fmt.Errorf("start: %w", tt.err)
			if errors.Is(wrapped, ErrNotPermitted) != denied || errors.Is(wrapped, ErrUnsupported) == denied {
				t.Errorf("%s, %s: ErrNotPermitted is %v, ErrUnsupported is %v, want %v and %v", tt.name, who,
					errors.Is(wrapped, ErrNotPermitted), errors.Is(wrapped, ErrUnsupported), denied, !denied)
			}
			if errors.Is(wrapped, ErrNoVariant) {
				t.Errorf("%s, %s: is ErrNoVariant", tt.name, who)
			}
		}
		withoutAdmin(t, func() { check("without CAP_SYS_ADMIN", tt.denied) })
		if isAdmin() {
			check("with CAP_SYS_ADMIN", false)
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
		{rejected, rejected},
		{odd, odd},
	} {
		if got := Classify(tt.err); !errors.Is(got, tt.want) {
			t.Errorf("Classify(%v) is %v, want %v", tt.err, got, tt.want)
		}
	}
	if errors.Is(Classify(rejected), ErrNotPermitted) {
		t.Error("an error of the verifier is classified as ErrNotPermitted")
	}
}
