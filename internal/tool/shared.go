package tool

import (
	"io"
	"sync"

	"github.com/corescope/corescope/internal/value"
)

// shared is standard error for several goroutines. It escapes terminal control sequences, because
// messages can contain names chosen by untrusted users.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.w.Write(value.AppendVisible(nil, b)); err != nil {
		return 0, err
	}
	return len(b), nil
}
