package command

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"

	"github.com/corescope/corescope/internal/flags"
)

// versionFlags are the flags of version.
type versionFlags struct {
	JSON bool `flag:"json" help:"as JSON, with the compiler, the headers and the source of each BPF object"`
}

// versionOutput is the output of version --json.
type versionOutput struct {
	Version string   `json:"version"`
	Go      string   `json:"go"`
	Arch    string   `json:"arch"`
	Objects []object `json:"objects"`
}

// object states how the BPF objects of a tool were built.
type object struct {
	Tool         string `json:"tool"`
	Compiler     string `json:"compiler"`
	Libbpf       string `json:"libbpf"`
	SourceSHA256 string `json:"source_sha256"`
}

func (c *Command) version(_ context.Context, args []string) error {
	var o versionFlags
	set := flags.New("version")
	if err := set.Add(&o, nil); err != nil {
		return err
	}
	if err := set.Parse(args); err != nil {
		return err
	}
	if !o.JSON {
		_, err := fmt.Fprintln(c.Out, "corescope "+c.Version)
		return err
	}
	out := versionOutput{Version: c.Version, Go: runtime.Version(), Arch: runtime.GOARCH, Objects: []object{}}
	for line := range strings.Lines(c.Objects) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(cells) != 4 {
			return fmt.Errorf("read table of BPF objects: line %q: want 4 columns", line)
		}
		out.Objects = append(out.Objects, object{cells[0], cells[1], cells[2], cells[3]})
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return fmt.Errorf("encode version: %w", err)
	}
	_, err = fmt.Fprintln(c.Out, string(text))
	return err
}
