package gethostlatency

import (
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// TestUnreturned attaches to the entry of a function only, so that no return is observed: all calls
// must be counted as unreturned.
func TestUnreturned(t *testing.T) {
	const program, calls = "lookup__uprobe__gethostbyname", 3
	p := tooltest.LoadPrograms(t, loadBpf, nil, program)
	lib := libc(t)
	ex, err := link.OpenExecutable(lib.Path)
	if err != nil {
		t.Fatal(err)
	}
	begin, err := ex.Uprobe("gethostbyname", p.Programs[program], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer begin.Close()
	for range calls {
		lib.Call("gethostbyname", native.Call{})
	}
	if n := p.Counter("no_return"); n != calls {
		t.Errorf("%d calls are counted as unreturned, want %d", n, calls)
	}
	if lost := p.Unobserved(); lost != 0 {
		t.Errorf("%d lost, want 0", lost)
	}
}
