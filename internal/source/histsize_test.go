package source

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/tool"
)

// TestBounds checks the size of the map: each key can have entries for slots per epoch and CPU. Without a
// bound of each key the map keeps its size, and it never gets larger.
func TestBounds(t *testing.T) {
	const most = 1 << 20
	perKey := 2 * slotsPerKey * uint32(ebpf.MustPossibleCPU())
	for _, tt := range []struct {
		bounds map[string]uint32
		keys   []string
		want   uint32
	}{
		{map[string]uint32{"disk": 3}, []string{"disk"}, min(3*perKey, most)},
		{map[string]uint32{"disk": 3, "op": 2}, []string{"op", "disk"}, min(6*perKey, most)},
		{map[string]uint32{"disk": 3}, []string{"disk", "pid"}, 0},
		{map[string]uint32{"disk": 1 << 31, "op": 1 << 31}, []string{"disk", "op"}, most},
		{map[string]uint32{"disk": 1 << 31}, []string{"disk", "pid"}, 0},
		{nil, []string{"pid"}, 0},
	} {
		h := hists{bounds: tt.bounds, plan: &tool.Plan{}}
		h.setUp(h.plan)
		spec := &ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{"hists": {MaxEntries: most}}}
		if err := h.size(spec, tt.keys); err != nil || h.plan.MapEntries["hists"] != tt.want {
			t.Errorf("bounds %v, keys %v: %d entries, %v, want %d", tt.bounds, tt.keys, h.plan.MapEntries["hists"], err, tt.want)
		}
	}
	h := hists{plan: &tool.Plan{}, plain: true}
	h.setUp(h.plan)
	if err := h.size(&ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{"hists": {MaxEntries: most}}}, nil); err != nil || h.plan.MapEntries["hists"] != 1 {
		t.Errorf("a single histogram has %d entries, %v, want 1", h.plan.MapEntries["hists"], err)
	}
}
