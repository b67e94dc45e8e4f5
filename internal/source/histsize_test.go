package source

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/tool"
)

// TestBounds checks the size of the map: each key can have entries for slots per epoch and CPU. Without a
// bound of each key it has the size for any number of keys, and it never gets larger.
func TestBounds(t *testing.T) {
	const most = 1 << 20
	cpus := ebpf.MustPossibleCPU()
	perKey, usual := 2*slotsPerKey*uint32(cpus), (&filling{}).entries(&ebpf.MapSpec{MaxEntries: most}, cpus)
	for _, tt := range []struct {
		bounds map[string]uint32
		keys   []string
		want   uint32
	}{
		{map[string]uint32{"disk": 3}, []string{"disk"}, min(3*perKey, usual)},
		{map[string]uint32{"disk": 3, "op": 2}, []string{"op", "disk"}, min(6*perKey, usual)},
		{map[string]uint32{"disk": 3}, []string{"disk", "pid"}, usual},
		{map[string]uint32{"disk": 1 << 31, "op": 1 << 31}, []string{"disk", "op"}, usual},
		{map[string]uint32{"disk": 1 << 31}, []string{"disk", "pid"}, usual},
		{nil, []string{"pid"}, usual},
	} {
		h := hists{bounds: tt.bounds, plan: &tool.Plan{}}
		h.setUp(h.plan)
		if err := h.size(countsSpec("hists", most, true), tt.keys); err != nil || h.plan.MapEntries["hists"] != tt.want {
			t.Errorf("bounds %v, keys %v: %d entries, %v, want %d", tt.bounds, tt.keys, h.plan.MapEntries["hists"], err, tt.want)
		}
	}
	h := hists{plan: &tool.Plan{}, plain: true}
	h.setUp(h.plan)
	if err := h.size(countsSpec("hists", most, true), nil); err != nil || h.plan.MapEntries["hists"] != 1 {
		t.Errorf("a single histogram has %d entries, %v, want 1", h.plan.MapEntries["hists"], err)
	}
}
