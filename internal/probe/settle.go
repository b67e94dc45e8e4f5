package probe

import (
	"errors"
	"fmt"
)

// prepareSettling attaches the iterators of Options.Settle. Iterators that the kernel does not
// support are omitted.
func (o *Objects) prepareSettling() error {
	for _, it := range o.options.Settle {
		if err := o.Prepare(it); err != nil && !errors.Is(err, ErrUnsupported) {
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
	for _, it := range o.options.Settle {
		if o.iterators[it] == nil {
			continue
		}
		if err := o.iterate(it, func([]byte) error { return nil }); err != nil {
			return fmt.Errorf("count events that were not observed to end: %w", err)
		}
	}
	return nil
}
