package probe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// gracePeriods waits for RCU grace periods, and thereby until all programs that run when the wait
// begins have finished.
//
// The update of a map of maps returns after a grace period, so that no program uses the replaced
// map any more (maybe_wait_bpf_programs(), since Linux 4.20, 1ae80cf31938). Tracing programs run
// within RCU read-side critical sections, except for sleepable ones. membarrier(2) would wait for a
// grace period too, but fails with nohz_full.
type gracePeriods struct{ outer, inner *ebpf.Map }

func newGracePeriods() (*gracePeriods, error) {
	spec := &ebpf.MapSpec{Name: "grace", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	inner, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("create map: %w", Classify(err))
	}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "grace", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: spec,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create map of maps: %w", Classify(err)), inner.Close())
	}
	return &gracePeriods{outer, inner}, nil
}

func (g *gracePeriods) await() error {
	if err := g.outer.Put(uint32(0), g.inner); err != nil {
		return fmt.Errorf("wait for an RCU grace period: %w", Classify(err))
	}
	return nil
}

// Close closes the maps. A nil *gracePeriods is valid and has none.
func (g *gracePeriods) Close() error {
	if g == nil {
		return nil
	}
	return errors.Join(g.outer.Close(), g.inner.Close())
}

// AwaitGracePeriod waits until all programs that are running have finished.
func (o *Objects) AwaitGracePeriod() error { return o.grace.await() }
