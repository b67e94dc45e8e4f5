package source

import (
	"testing"

	"github.com/cilium/ebpf"
)

// TestMaxKeys checks the size of the map: each key can have an entry per epoch and CPU. The map never gets larger.
func TestMaxKeys(t *testing.T) {
	const most = 1 << 20
	for keys, want := range map[uint32]uint32{0: 0, 16: 2 * 16 * uint32(ebpf.MustPossibleCPU()), most: most} {
		table := Table[uint32, uint64, struct{}]{MaxKeys: keys}
		if err := table.sizeMap(&ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{"table": {MaxEntries: most}}}); err != nil {
			t.Fatal(err)
		}
		if got := table.MapEntries["table"]; got != want {
			t.Errorf("%d entries for %d keys, want %d", got, keys, want)
		}
	}
	table := Table[struct{}, uint64, struct{}]{MaxKeys: 1}
	if err := table.sizeMap(&ebpf.CollectionSpec{}); err != nil || table.MapEntries != nil {
		t.Errorf("without a map: %v, %v", err, table.MapEntries)
	}
}
