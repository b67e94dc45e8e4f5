package tool

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
)

func TestComm(t *testing.T) {
	for comm, want := range map[string]any{"": nil, "sh": "sh\x00", "sh*": "sh", "*": "", "a?b": "a?b\x00", "a name of 17 byte": "a name of 17 by\x00"} {
		vars := map[string]any{}
		if err := (&tasks{Comm: comm}).comm(vars); err != nil || vars["targ_comm"] != want {
			t.Errorf("--comm %q sets %q, %v, want %q", comm, vars["targ_comm"], err, want)
		}
	}
	for _, comm := range []string{"a*b", "*b", "a**"} {
		err := (&tasks{Comm: comm}).comm(map[string]any{})
		if !errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), "--comm "+comm+": only a * at the end is supported") {
			t.Errorf("--comm %q: %v", comm, err)
		}
	}
}

func TestTooManyIDs(t *testing.T) {
	err := (&tasks{PID: make([]uint32, 17)}).ids(map[string]any{}, 16)
	if !errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), "--pid: 17 IDs: at most 16 are supported") {
		t.Errorf("got %v", err)
	}
}

// TestCheckIDs checks that a thread that is not the thread-group leader is no process.
func TestCheckIDs(t *testing.T) {
	tids, end := make(chan int64), make(chan struct{})
	defer close(end)
	for range 2 { // one of them may be the first thread
		go func() {
			// Locked, so that the goroutines are two threads.
			tids <- lockedThread()
			<-end
		}()
	}
	own := int64(os.Getpid())
	tid := <-tids
	if other := <-tids; tid == own {
		tid = other
	}
	for _, tt := range []struct {
		ids  flags.IDs
		want string
	}{
		{flags.IDs{Flag: "--pid", Kind: flags.Process, IDs: []int64{own}}, ""},
		{flags.IDs{Flag: "--tid", Kind: flags.Thread, IDs: []int64{own, tid}}, ""},
		{flags.IDs{Flag: "--pid", Kind: flags.Process, IDs: []int64{own, tid}}, "this is a thread of process"},
		{flags.IDs{Flag: "--pid", Kind: flags.Process, IDs: []int64{4 << 20}}, "--pid 4194304: no such process"},
		{flags.IDs{Flag: "--tid", Kind: flags.Thread, IDs: []int64{4 << 20}}, "--tid 4194304: no such thread"},
		{flags.IDs{Flag: "--cpu", Kind: flags.CPU, IDs: []int64{-1}}, ""},
		{flags.IDs{Flag: "--cpu", Kind: flags.CPU, IDs: []int64{1 << 20}}, "--cpu 1048576: no such online CPU (online: "},
	} {
		err := checkIDs(newEnv(), []flags.IDs{tt.ids})
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, want %q", tt.ids, err, tt.want)
		}
	}
}

func TestCheckIDsOtherProc(t *testing.T) {
	env := newEnv()
	env.PIDNamespace = func() (system.PIDNamespace, error) {
		return system.PIDNamespace{Inode: 1, OtherProc: true}, nil
	}
	for kind, refused := range map[flags.Kind]bool{flags.Process: true, flags.Thread: true, flags.CPU: false} {
		err := checkIDs(env, []flags.IDs{{Flag: "--x", Kind: kind, IDs: []int64{0}}})
		if errors.Is(err, flags.ErrUsage) != refused || errors.Is(err, system.ErrOtherProc) != refused {
			t.Errorf("%s: %v, want refused: %v", kind, err, refused)
		}
	}
}

func lockedThread() int64 {
	runtime.LockOSThread()
	return int64(unix.Gettid())
}
