package tool

import (
	"io"
	"sync"

	"github.com/corescope/corescope/internal/value"
)

// shared is standard error: several goroutines write whole lines to it, which can contain names
// that others chose.
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
