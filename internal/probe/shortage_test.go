package probe

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// TestShortage checks that an error of missing descriptors or memory is not taken for a missing
// feature of the kernel, also where the library does not wrap it.
func TestShortage(t *testing.T) {
	unwrapped := fmt.Errorf("can't clone map: %w", fmt.Errorf("can't dup fd: %v", unix.EMFILE))
	for _, tt := range []struct{ err, want error }{
		{nil, nil},
		{unix.EINVAL, nil},
		{errors.New("hint: too many open files are one cause"), nil},
		{fmt.Errorf("load: %w", unix.EMFILE), unix.EMFILE},
		{fmt.Errorf("load: %w", unix.ENOMEM), unix.ENOMEM},
		{fmt.Errorf("load: %w", unwrapped), unix.EMFILE},
	} {
		if got := shortage(tt.err); got != tt.want {
			t.Errorf("shortage(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}
