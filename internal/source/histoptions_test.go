package source

import (
	"slices"
	"testing"

	"github.com/corescope/corescope/internal/histogram"
)

func TestKeys(t *testing.T) {
	type options struct {
		Milliseconds
		PIDs bool `key:"pid,comm"`
		TIDs bool `key:"tid,comm"`
		ByOwner
	}
	o := options{PIDs: true, TIDs: true}
	o.Containers = true
	if got, want := Keys(&o), []string{"pid", "comm", "tid", "comm", "container"}; !slices.Equal(got, want) {
		t.Errorf("keys are %v, want %v", got, want)
	}
	if got := Keys(&options{}); got != nil || o.Unit() != histogram.Microseconds {
		t.Errorf("without an option keys are %v, the unit is %v", got, o.Unit())
	}
}

func TestOwner(t *testing.T) {
	if cgroup, container := (ByOwner{}).Owner(1, nil); cgroup+container != "" {
		t.Errorf("without an option the owner is %q, %q", cgroup, container)
	}
}
