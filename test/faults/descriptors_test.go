package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestDescriptors limits the tool's file descriptors (RLIMIT_NOFILE). 1,024 suffice. With 12 the
// tool fails and reports how many it needs. With exactly that number it works, with the same hooks.
func TestDescriptors(t *testing.T) {
	eachBuffer(t, func(s *subject) {
		usual := s.hooksWithDescriptors(1024)
		short := s.command().within("ulimit -n 12").start(s)
		short.checkFailure(s, 1, "too many open files", "12 are allowed")
		var need int
		_, text, _ := strings.Cut(short.stderr.String(), "it needs ")
		if _, err := fmt.Sscanf(text, "%d,", &need); err != nil {
			s.Fatal(err)
		}
		if few := s.hooksWithDescriptors(need); !slices.Equal(few, usual) {
			s.Errorf("with %d descriptors hooks are %v, want %v as with 1,024", need, few, usual)
		}
	})
}

// hooksWithDescriptors runs the tool with this number of descriptors and returns its attached
// hooks.
func (s *subject) hooksWithDescriptors(descriptors int) []string {
	s.Helper()
	r := s.command().within(fmt.Sprintf("ulimit -n %d", descriptors)).start(s).await(s)
	done := s.usual()
	r.stop(s).judge(s, done)
	return r.hooks
}
