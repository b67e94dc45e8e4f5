package source

import (
	"errors"
	"testing"

	"github.com/corescope/corescope/internal/ring"
)

var errWake = errors.New("wake")

// unwakeable is a reader that cannot be woken.
type unwakeable struct{ ring.Reader }

func (unwakeable) Wake() error { return errWake }

// TestAwaitWakes checks that a report wakes the reader before it waits for stacks: they wait longer in the
// ring buffer than the report waits for them.
func TestAwaitWakes(t *testing.T) {
	r := stackReading{reader: unwakeable{}}
	if err := r.await(nil); !errors.Is(err, errWake) {
		t.Errorf("error %v, want %v", err, errWake)
	}
}
