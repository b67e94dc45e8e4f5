package tool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/probe"
)

// A run without rows does not claim that nothing happened: programs do not count what they skip.
func TestNothingClaimed(t *testing.T) {
	objects := &probe.Objects{Tried: map[string][]probe.Attempt{"f": {{Variant: probe.Variant{Kind: "raw"}}}}}
	for _, tt := range []struct {
		s    Session
		lost uint64
		want []string
	}{
		{Session{}, 0, []string{"no event matched in ", " at f"}},
		{Session{}, 1, []string{"no event matched in ", "; 1 event was lost"}},
		{Session{}, 100, []string{"no event matched in ", "; 100 events were lost"}},
		{Session{rowNoun: "outstanding allocation"}, 0, []string{"no outstanding allocation matched in "}},
		{Session{Excluded: 2}, 0, []string{"filters excluded 2 rows"}},
		{Session{lists: true}, 0, []string{"nothing found by f"}},
	} {
		tt.s.Objects, tt.s.begun = objects, time.Now()
		got := strings.Join(tt.s.whyNothing(tt.lost), "; ")
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
}

// A process that exits while programs are attached has the exit status of one that does not exist.
func TestExitedStatus(t *testing.T) {
	if got := exitCode(fmt.Errorf("process 1 %w", probe.ErrExited)); got != ExitUsage {
		t.Errorf("exit status %d, want %d", got, ExitUsage)
	}
}
