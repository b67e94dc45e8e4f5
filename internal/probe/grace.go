package probe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// gracePeriods waits until programs that run now have ended.
//
// An update of a map of maps returns after an RCU grace period, so that no program uses the
// replaced map any more (maybe_wait_bpf_programs(), since 4.20 by 1ae80cf31938). All programs
// of tracing run in RCU read sections, but for those that may sleep. membarrier(2) waits for
// a grace period too, but not with nohz_full, where it fails.
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

// Close frees the maps. A nil *gracePeriods has none.
func (g *gracePeriods) Close() error {
	if g == nil {
		return nil
	}
	return errors.Join(g.outer.Close(), g.inner.Close())
}

// AwaitGracePeriod returns when no program runs any more that ran when it was called.
func (o *Objects) AwaitGracePeriod() error { return o.grace.await() }
