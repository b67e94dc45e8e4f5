package numasched

import (
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { schedtest.Main(m) }

// nodeOf returns the NUMA node of a CPU, from sysfs; 0 if the kernel has no NUMA support.
func nodeOf(t *testing.T, cpu int) int {
	t.Helper()
	all, _ := filepath.Glob("/sys/devices/system/cpu/cpu" + strconv.Itoa(cpu) + "/node[0-9]*") // the pattern is valid
	if len(all) == 0 {
		return 0
	}
	node, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(all[0]), "node"))
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// TestMove moves a thread between nodes. On a machine with one node, the test changes the node that
// the program has noted while the thread sleeps. The thread then wakes up on another node, once.
func TestMove(t *testing.T) {
	for _, attach := range tooltest.ArgVariants([]string{"--hook", "switch=raw"}) {
		cpu := schedtest.CPUs(t)[0]
		w := schedtest.Start(t, cpu, nil)
		here := nodeOf(t, cpu)
		const apart = 3
		wake := func() {
			w.Begin(t, "nothing", "")
			w.End(t)
		}
		res := tooltest.JSON(t, Tool, append(attach, "--tid", strconv.Itoa(w.PID)), func() {
			wake()
			nodes := tooltest.OwnMap(t, "task_nodes")
			defer nodes.Close()
			var noted uint32
			if err := nodes.Lookup(uint32(w.PID), &noted); err != nil || int(noted) != here+1 {
				t.Errorf("the noted node plus 1 is %d, %v, want %d", noted, err, here+1)
			}
			if err := nodes.Put(uint32(w.PID), uint32(here+1+apart)); err != nil {
				t.Error(err)
			}
			wake()
			wake()
		})
		if len(res.Events) != 1 {
			t.Fatalf("%d rows, want 1: %v", len(res.Events), res.Events)
		}
		r := res.Events[0]
		if int(r.Num("src_node")) != here+apart || int(r.Num("dst_node")) != here || int(r.Num("cpu")) != cpu ||
			int(r.Num("pid")) != w.PID || r.Str("comm") != "numasched.test" {
			t.Errorf("row %v, want a move from node %d to %d", r, here+apart, here)
		}
	}
}

// TestExit checks that the node of a thread is removed when it exits.
func TestExit(t *testing.T) {
	tooltest.AnyAttachType(t)
	var noted uint32
	tooltest.JSONUndisturbed(t, Tool, nil, func() {
		w := schedtest.Start(t, schedtest.CPUs(t)[0], nil)
		nodes := tooltest.OwnMap(t, "task_nodes")
		defer nodes.Close()
		if err := nodes.Lookup(uint32(w.PID), &noted); err != nil || noted == 0 {
			t.Errorf("the noted node of a thread plus 1 is %d, %v", noted, err)
		}
		w.Kill()
		// The thread leaves its CPU shortly after its parent has been told that it exited.
		for end := time.Now().Add(10 * time.Second); noted != 0 && time.Now().Before(end); {
			if err := nodes.Lookup(uint32(w.PID), &noted); err != nil {
				t.Error(err)
			}
		}
	})
	if noted != 0 {
		t.Error("the node of a thread that has exited is still noted")
	}
}

// TestOneNode expects a notice on a machine that has nothing to show.
func TestOneNode(t *testing.T) {
	tooltest.Root(t)
	var errOut strings.Builder
	if code := tool.Run(t.Context(), Tool, []string{"--duration", "1ms"}, io.Discard, &errOut); code != tool.ExitOK {
		t.Fatalf("exit code %d: %s", code, &errOut)
	}
	if one := system.MemoryNodes("/") == 1; one != strings.Contains(errOut.String(), "has one NUMA node") {
		t.Errorf("one node: %v, notices: %s", one, &errOut)
	}
}
