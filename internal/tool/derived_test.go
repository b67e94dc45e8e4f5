package tool

import (
	"testing"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/output"
)

// TestDerivedIsExact expects the exact bytes of a name that is looked up and is not UTF-8, such as that
// of a cgroup.
func TestDerivedIsExact(t *testing.T) {
	id := uint32(7)
	names := map[uint32]string{7: "/a\xff", 8: "/é"}
	cols := []column.Column{{Key: "cgroup", Value: derived[uint32]{&id, func(id uint32) string { return names[id] }}}}
	for _, want := range []string{`{"cgroup":"/a\ufffd","cgroup_base64":"L2H/"}`, `{"cgroup":"/é"}`, `{}`} {
		if got := string(output.AppendObject(nil, cols)); got != want {
			t.Errorf("object %s, want %s", got, want)
		}
		id++
	}
}
