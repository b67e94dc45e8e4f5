package probe

import "runtime/debug"

// Guarded returns f for a goroutine of the run. If Options.Panicked is set, it is called with a panic of f, which
// then returns; else a panic ends the process.
func (o *Objects) Guarded(f func()) func() {
	if o.options.Panicked == nil {
		return f
	}
	return func() {
		defer func() {
			if v := recover(); v != nil {
				o.options.Panicked(v, debug.Stack())
			}
		}()
		f()
	}
}
