package blockio

import (
	"testing"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
)

func TestPlan(t *testing.T) {
	env := &tool.Env{Disks: system.NewDisks(t.TempDir())}
	p, err := Options{}.Plan(env)
	if err == nil {
		err = p.Resolve(&p, nil)
	}
	if err != nil || p.MapEntries["ios"] < p.Variables["ios_kept"].(uint32) {
		t.Errorf("ios has %d entries, ios_kept = %v, %v, want no more than the entries",
			p.MapEntries["ios"], p.Variables["ios_kept"], err)
	}
	if _, ok := p.Variables["targ_dev"]; ok {
		t.Error("targ_dev is set without --disk")
	}
	if _, err := (Options{Disk: "vda"}).Plan(env); err == nil {
		t.Error("Plan with a nonexistent disk succeeds, want an error")
	}
	if got := DiskName(7<<20|3, env); got != "7:3" {
		t.Errorf("DiskName of an unknown disk = %s, want 7:3", got)
	}
}
