package source

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/tool"
)

// TestMaxKeys checks the size of the map: each key can have an entry per epoch and CPU. The map never gets larger.
func TestMaxKeys(t *testing.T) {
	const most = 1 << 20
	for keys, want := range map[uint32]uint32{0: 0, 16: 2 * 16 * uint32(ebpf.MustPossibleCPU()), most: most} {
		var plan tool.Plan
		if err := sizeTable(&ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{"table": {MaxEntries: most}}}, &plan, keys); err != nil {
			t.Fatal(err)
		}
		if got := plan.MapEntries["table"]; got != want {
			t.Errorf("%d entries for %d keys, want %d", got, keys, want)
		}
	}
	var plan tool.Plan
	if err := sizeTable(&ebpf.CollectionSpec{}, &plan, 1); err != nil || plan.MapEntries != nil {
		t.Errorf("without a map: %v, %v", err, plan.MapEntries)
	}
}
