package tool

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
)

func TestFormatUninspected(t *testing.T) {
	own := uint32(os.Getpid())
	name := fmt.Sprintf("%d (%s)", own, commOf(own))
	for _, tt := range []struct {
		pids    []uint32
		missing system.Capabilities
		want    string
	}{
		{[]uint32{own}, 0, "cannot inspect process " + name + " (the kernel hides it): libraries that only it maps are not traced"},
		{[]uint32{own, own}, 0, "cannot inspect 2 processes: " + name + ", " + name + " (the kernel hides them): libraries that only they map are not traced"},
		{
			[]uint32{own, own, own, own}, system.Set(system.CapSysPtrace),
			"cannot inspect 4 processes: " + name + ", " + name + ", " + name + ", ... (missing CAP_SYS_PTRACE): libraries that only they map are not traced",
		},
		{[]uint32{4 << 20}, 0, "cannot inspect process 4194304 (?) (the kernel hides it): libraries that only it maps are not traced"},
	} {
		if got := formatUninspected(tt.pids, tt.missing); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

// Processes that --pid, --tid or --exec exclude are not reported: their libraries are not traced anyway.
func TestUninspectedIsSelected(t *testing.T) {
	own, other := uint32(os.Getpid()), uint32(4<<20)
	hidden := []uint32{own, other}
	for _, tt := range []struct {
		tasks   tasks
		command *command
		want    []uint32
	}{
		{tasks{}, nil, hidden},
		{tasks{Comm: "name"}, nil, hidden},
		{tasks{PID: []uint32{own}}, nil, []uint32{own}},
		{tasks{PID: []uint32{own + 1}}, nil, nil},
		{tasks{TID: []uint32{own}}, nil, []uint32{own}},
		{tasks{PID: []uint32{other}, TID: []uint32{own}}, nil, nil},
		{tasks{}, &command{}, nil},
	} {
		s := &Session{Env: &Env{tasks: &tt.tasks}, Objects: &probe.Objects{Uninspected: hidden}, command: tt.command}
		if got := s.uninspected(); !slices.Equal(got, tt.want) {
			t.Errorf("%+v, command %t: %v, want %v", tt.tasks, tt.command != nil, got, tt.want)
		}
	}
}
