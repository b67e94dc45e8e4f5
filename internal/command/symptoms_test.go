package command

import (
	"bytes"
	"strings"
	"testing"

	"github.com/corescope/corescope/docs/symptoms"
	"github.com/corescope/corescope/internal/tool"
)

// TestHelpOfSymptoms checks that the usage lists the symptoms and that help prints their pages.
func TestHelpOfSymptoms(t *testing.T) {
	for _, p := range symptoms.All() {
		var out, errOut bytes.Buffer
		c := Command{Out: &out, Err: &errOut}
		if code := c.Run(t.Context(), []string{"corescope", "help"}); code != tool.ExitOK || !strings.Contains(out.String(), p.Name) {
			t.Errorf("help: exit code %d, without %s: %s", code, p.Name, &errOut)
		}
		out.Reset()
		args := append([]string{"corescope", "help"}, strings.Split(p.Name, "-")...)
		if code := c.Run(t.Context(), args); code != tool.ExitOK || out.String() != p.Text() {
			t.Errorf("%q: exit code %d: %s%s", args, code, &out, &errOut)
		}
	}
}
