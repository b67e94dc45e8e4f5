package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/tools"
)

// TestDescriptors limits the tool's file descriptors (RLIMIT_NOFILE). With 12 the tool fails and
// reports how many it needs. With exactly that number it works. 1,024 suffice, and with the reported
// number the tool has the same hooks. Perf buffers need more descriptors than a ring buffer. A tool
// without programs works with 12.
func TestDescriptors(t *testing.T) {
	enough := func(s *subject) []string {
		if s.tool.NoPrograms {
			return s.hooksWithDescriptors(12)
		}
		short := s.command().within("ulimit -n 12").start(s)
		short.checkFailure(s, 1, "too many open files", "12 are allowed")
		var need int
		_, text, _ := strings.Cut(short.stderr.String(), "it needs ")
		if _, err := fmt.Sscanf(text, "%d,", &need); err != nil {
			s.Fatal(err)
		}
		return s.hooksWithDescriptors(need)
	}
	compare := func(s *subject) {
		few := enough(s)
		if usual := s.hooksWithDescriptors(1024); !slices.Equal(few, usual) {
			s.Errorf("with as few descriptors as it needs hooks are %v, want %v as with 1,024", few, usual)
		}
	}
	some := representatives(t)
	eachBuffer(t, some, compare)
	others := without(tools.All(), some)
	eachTool(t, without(others, sending(t, true)), func(s *subject) { enough(s) })
	eachPerf(t, others, func(s *subject) { enough(s) })
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
