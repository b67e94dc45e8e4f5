package dbstat

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

const function = "_Z16dispatch_command19enum_server_commandP3THDPcjb"

// TestLatency runs a known number of commands, for at least a known time.
func TestLatency(t *testing.T) {
	lib := native.Open(t, "mariadbd", []string{function})
	text := native.Text("select 1")
	const n, sleep = 20, 2 * time.Millisecond
	pid := fmt.Sprint(os.Getpid())
	for _, args := range [][]string{{"mysql", "-u"}, {"-m", "1"}, {"--commands", "-u"}} {
		var took time.Duration
		res := tooltest.JSON(t, Tool, append(args, "--pid", pid), func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			begin := time.Now()
			for range n {
				lib.Call(function, native.Call{Args: [7]uint64{3, 0, native.Pointer(text), 8}, Sleep: sleep})
				lib.Call(function, native.Call{Args: [7]uint64{22, 0, native.Pointer(text), 8}, Sleep: sleep})
			}
			took = time.Since(begin)
		})
		unit := map[bool]time.Duration{true: time.Microsecond, false: time.Millisecond}[args[len(args)-1] == "-u"]
		want := map[string]float64{"": 2 * n}
		switch args[0] {
		case "-m":
			want = map[string]float64{"mysql": 2 * n}
		case "--commands":
			want = map[string]float64{"mysqlquery": n, "mysqlprepare": n}
		}
		for _, h := range res.Histograms {
			key := h.Object("key")
			name := key.Str("database") + key.Str("command")
			if h.Num("count") != want[name] || h.Num("min")*float64(unit) < float64(sleep) || h.Num("sum")*float64(unit) > float64(took) {
				t.Errorf("%q: histogram %v: want %v queries in %v", args, h, want[name], took)
			}
			delete(want, name)
		}
		if len(want) > 0 || tooltest.Lost(res.Summary) != 0 {
			t.Errorf("%q: missing histograms %v, summary %v", args, want, res.Summary)
		}
	}
}

func TestText(t *testing.T) {
	lib := native.Open(t, "mariadbd", []string{function})
	text := native.Text("select 1")
	out := tooltest.Text(t, Tool, []string{"--pid", fmt.Sprint(os.Getpid())}, func() {
		lib.Call(function, native.Call{Args: [7]uint64{3, 0, native.Pointer(text), 8}})
	})
	if !strings.Contains(out, "query latency (ms)") || !strings.Contains(out, "database = mysql") {
		t.Errorf("text is %q", out)
	}
}
