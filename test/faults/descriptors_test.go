package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestDescriptors allows the tool few descriptors. With 1,024 it works. With 12 it says
// how many it needs; with just these it works too, with every hook.
func TestDescriptors(t *testing.T) {
	eachBuffer(t, func(s *subject) {
		usual := s.allowed(1024)
		short := s.command().within("ulimit -n 12").start(s)
		short.says(s, 1, "too many open files", "12 are allowed")
		var need int
		_, text, _ := strings.Cut(short.stderr.String(), "it needs ")
		if _, err := fmt.Sscanf(text, "%d,", &need); err != nil {
			s.Fatal(err)
		}
		if few := s.allowed(need); !slices.Equal(few, usual) {
			s.Errorf("with %d descriptors the hooks are %v, else %v", need, few, usual)
		}
	})
}

// allowed runs the tool with so many descriptors, and returns its hooks.
func (s *subject) allowed(descriptors int) []string {
	s.Helper()
	r := s.command().within(fmt.Sprintf("ulimit -n %d", descriptors)).start(s).await(s)
	done := s.usual()
	r.stop(s).judge(s, done)
	return r.hooks
}
