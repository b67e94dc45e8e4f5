package command

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/corescope/corescope/internal/tool"
)

func TestVersionJSON(t *testing.T) {
	var out, errOut bytes.Buffer
	c := Command{Version: "v1", Objects: "a\tclang 1\t2\tabc\nb\tclang 3\t4\tdef\n", Out: &out, Err: &errOut}
	if code := c.Run(context.Background(), []string{"corescope", "version", "--json"}); code != tool.ExitOK {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	var got versionOutput
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if want := (object{"b", "clang 3", "4", "def"}); got.Version != "v1" || got.Go == "" || got.Arch == "" || len(got.Objects) != 2 || got.Objects[1] != want {
		t.Errorf("got %+v", got)
	}
	c.Objects = "a\tclang\n"
	if code := c.Run(context.Background(), []string{"corescope", "version", "--json"}); code != tool.ExitFailure {
		t.Errorf("exit code %d for a broken table, want %d", code, tool.ExitFailure)
	}
}
