package blockio

import (
	"testing"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
)

func TestPlan(t *testing.T) {
	env := &tool.Env{Disks: system.NewDisks(t.TempDir())}
	p, err := Options{}.Plan(env)
	if err != nil || p.MapEntries["ios"] < p.Variables["ios_kept"].(uint32) {
		t.Errorf("%d entries, of which %v are kept, %v", p.MapEntries["ios"], p.Variables["ios_kept"], err)
	}
	if _, chosen := p.Variables["targ_dev"]; chosen {
		t.Error("a disk is chosen that nobody asked for")
	}
	if _, err := (Options{Disk: "vda"}).Plan(env); err == nil {
		t.Error("a disk is there that is not")
	}
	if got := DiskName(7<<20|3, env); got != "7:3" {
		t.Errorf("a disk without a name is %s, want 7:3", got)
	}
}
