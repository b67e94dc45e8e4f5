package threadsnoop

import (
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

// worker is a function that new threads would execute.
func worker() { fmt.Println() }

func address() uint64 { return uint64(reflect.ValueOf(worker).Pointer()) }

// creates returns a function that calls pthread_create of a generated libc with two functions: one
// of this program, and an address that is not mapped.
func creates(t *testing.T) func() {
	t.Helper()
	lib := native.Open(t, "libc.so.6", []string{"pthread_create"})
	return func() {
		for range 5 {
			lib.Call("pthread_create", native.Call{Args: [7]uint64{1, 2, address(), 4}})
		}
		lib.Call("pthread_create", native.Call{Args: [7]uint64{1, 2, 16, 4}})
	}
}

func TestFunction(t *testing.T) {
	res := tooltest.JSON(t, Tool, self(), creates(t))
	if len(res.Events) != 6 {
		t.Fatalf("%d rows, want 6: %v", len(res.Events), res.Events)
	}
	for i, r := range res.Events {
		routine, name := fmt.Sprintf("%#x", address()), "threadsnoop.worker"
		if i == 5 {
			routine, name = "0x10", "0x10"
		}
		if r.Str("routine") != routine || !strings.HasSuffix(r.Str("func"), name) || int(r.Num("pid")) != os.Getpid() {
			t.Errorf("row %d: %v, want %s at %s", i, r, name, routine)
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	lines := strings.Split(tooltest.Text(t, Tool, self(), creates(t)), "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME(s) PID COMM FUNC" {
		t.Errorf("header is %q", got)
	}
	if len(lines) != 8 || !strings.HasSuffix(lines[1], "threadsnoop.worker") {
		t.Errorf("rows: %q", lines[1:])
	}
}
