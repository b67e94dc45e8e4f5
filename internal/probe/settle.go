package probe

import (
	"errors"
	"fmt"
)

// prepare attaches iterators. Those that the kernel does not support are omitted.
func (o *Objects) prepare(iterators []Iterator) error {
	for _, it := range iterators {
		if err := o.Prepare(it); err != nil && !errors.Is(err, ErrUnsupported) {
			return err
		}
	}
	return nil
}

// runPrepared runs each iterator once, except those that the kernel does not support.
func (o *Objects) runPrepared(iterators []Iterator) error {
	for _, it := range iterators {
		if o.iterators[it] == nil {
			continue
		}
		if err := o.iterate(it, func([]byte) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// settle runs the iterators of Options.Settle once, while all programs are attached.
func (o *Objects) settle() error {
	if len(o.links) == 0 {
		return nil
	}
	if err := o.runPrepared(o.options.Settle); err != nil {
		return fmt.Errorf("count events that were not observed to end: %w", err)
	}
	return nil
}
