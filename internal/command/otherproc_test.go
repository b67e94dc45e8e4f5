package command

import (
	"testing"

	"github.com/corescope/corescope/internal/doctor"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestOtherProc reads the facts of the machine with a /proc that does not contain this process:
// capabilities and limits must still be correct.
func TestOtherProc(t *testing.T) {
	if !tooltest.InOtherProc(t) {
		return
	}
	f := doctor.Read("/", "")
	effective, err := system.Effective()
	if err != nil {
		t.Fatal(err)
	}
	if !f.OtherProc || len(f.Capabilities) != len(effective.Names()) || f.OpenFiles == nil || f.Seccomp == "" {
		t.Errorf("facts %+v, want capabilities %s and a limit of open files", f, effective)
	}
	for _, l := range f.Lines() {
		if l.Name == "capabilities" && l.Problem != "" {
			t.Errorf("problem with capabilities: %+v", l)
		}
	}
}
