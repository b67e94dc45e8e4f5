package probe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Explain attaches and detaches every variant of every hook, loads every iterator, and returns the
// results by hook or by name of the iterator.
func (o *Objects) Explain() (map[string][]Attempt, error) {
	if err := addLater(o.spec, &o.options); err != nil {
		return nil, err
	}
	hooks, err := o.Hooks()
	if err != nil {
		return nil, err
	}
	if err := o.user.find(); err != nil {
		return nil, err
	}
	out := map[string][]Attempt{}
	for _, h := range hooks {
		for _, v := range h.Variants {
			o.clearReturns()
			err := o.tryVariant(h, v)
			if o.isStopped() {
				return nil, ErrStopped
			}
			if short := shortage(err); short != nil {
				return nil, fmt.Errorf("explain hook %s: %s: %w", h.Name, v, short)
			}
			out[h.Name] = append(out[h.Name], Attempt{Variant: v, Err: err, Returns: o.returnsIn(v)})
		}
	}
	for name, spec := range o.spec.Programs {
		if spec.AttachType == ebpf.AttachTraceIter {
			_, err := o.Program(name)
			out[name] = []Attempt{{Variant: Variant{"iter", []string{name}, []string{spec.SectionName}}, Err: err}}
		}
	}
	return out, nil
}

// ErrStopped is returned if Objects.Stop was closed.
var ErrStopped = errors.New("stopped")

func (o *Objects) isStopped() bool {
	select {
	case <-o.Stop:
		return true
	default:
		return false
	}
}

// samplesMax is the maximum number of targets that tryVariant attaches a variant to one by one: each
// takes up to 0.2 s. If some targets may fail, it tries others until one works.
const samplesMax = 4

// multiSamplesMax is the same for the functions of a pattern that are attached together: each changes
// the memory of all processes that have mapped the file.
const multiSamplesMax = 32

// tryTargets attaches a variant to some of the targets, until it is clear whether it works, and
// returns those that failed.
func (o *Objects) tryTargets(v Variant, in *Instance, targets []targetWithID) []targetError {
	multi := isMulti(o.spec.Programs[v.Programs[0]])
	if multi && in.AllowPartial && len(targets) > multiSamplesMax {
		if failed := o.attachTargets(v, in, targets[:multiSamplesMax]); len(failed) < multiSamplesMax {
			return failed
		}
	}
	if multi || len(targets) <= samplesMax {
		return o.attachTargets(v, in, targets)
	}
	var failed []targetError
	for i, t := range targets {
		more := o.attachTargets(v, in, []targetWithID{t})
		failed = append(failed, more...)
		switch {
		case len(more) > 0 && isDenied(more[0].err):
			return append(failed, failAll(targets[i+1:], more[0].err)...)
		case len(more) == 0 && in.AllowPartial, !in.AllowPartial && i == samplesMax-1, o.isStopped():
			return failed
		}
	}
	return failed
}

// tryVariant attaches and detaches a variant. Programs that are attached to each target on its own
// are attached to a few targets only.
func (o *Objects) tryVariant(h Hook, v Variant) error {
	instances := o.instances(h)
	if len(instances) == 0 {
		links, err := o.attachVariant(v)
		o.unload(v, links)
		return err
	}
	for _, in := range instances {
		targets, failed := o.splitUnsafe(h, in.withIDs())
		failed = append(failed, o.tryTargets(v, in, targets)...)
		if len(failed) > 0 && (!in.AllowPartial || len(failed) == len(in.Targets)) {
			return failed[0].err
		}
	}
	return o.Detach()
}
