package tool

import (
	"io"
	"sync"
)

// shared is a writer that several goroutines write whole lines to.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}
