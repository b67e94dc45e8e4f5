package source

import (
	"errors"
	"testing"
)

// A buffer of one page, the smallest, loses events under any load.
func TestEventsNeedBuffer(t *testing.T) {
	if _, err := (&Events[struct{}]{}).Describe(nil, nil); !errors.Is(err, errNoBuffer) {
		t.Errorf("error %v, want %v", err, errNoBuffer)
	}
}
