package biolatency

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
)

func TestFlagsName(t *testing.T) {
	for _, test := range []struct {
		flags uint16
		op    uint8
		want  string
	}{
		{0, 0, "Read"},
		{1, 1, "Sync-Write"},
		{1 << 7, 2, "PreFlush-Flush"},
		{1, 3, "Sync-Discard"},
		{1<<2 | 1<<1 | 1, 1, "Priority-Metadata-Sync-Write"},
		{1 << 8, 0, "ReadAhead-Read"},
		{1<<11 - 1, 5, "NoWait-Background-ReadAhead-PreFlush-FUA-Integrity-Idle-NoMerge-Priority-Metadata-Sync-WriteZeroes"},
		{0, 12, "ZoneResetAll"},
		{0, 17, "Unknown"},
		{0, 200, "Unknown"},
	} {
		if got := flagsName(test.flags, test.op); got != test.want {
			t.Errorf("flags %#x, operation %d: %s, want %s", test.flags, test.op, got, test.want)
		}
	}
}

// TestPlan checks that a run attaches only what it needs.
func TestPlan(t *testing.T) {
	bios := []string{"bioqueue", "biocomplete"}
	for _, test := range []struct {
		options            options
		without, forFilter []string
	}{
		{options{}, append([]string{"insert"}, bios...), []string{"submit"}},
		{options{Queued: true}, bios, []string{"submit"}},
		{options{Stages: true, ByOwner: source.ByOwner{Cgroups: true}}, bios, nil},
		{options{Disks: true, JSON: true}, []string{"insert"}, []string{"submit"}},
		{options{Options: blockio.Options{Disk: "vda"}, ByOwner: source.ByOwner{Containers: true}}, []string{"insert"}, nil},
	} {
		p := tool.Plan{Variables: map[string]any{}, MapEntries: map[string]uint32{}}
		test.options.hooks(&p)
		if !slices.Equal(p.Without, test.without) || !slices.Equal(p.ForFilter, test.forFilter) {
			t.Errorf("%+v: without %v and for filters %v", test.options, p.Without, p.ForFilter)
		}
	}
}

// TestRefusals checks command lines that are rejected before anything is attached.
func TestRefusals(t *testing.T) {
	for _, args := range [][]string{{"-d", "no-such-disk"}, {"-d", "/dev/null"}, {"1", "2", "3"}, {"--disk"}} {
		var out, errOut bytes.Buffer
		if code := tool.Run(t.Context(), Tool, args, &out, &errOut); code != tool.ExitUsage {
			t.Errorf("%q: exit code %d: %s", args, code, &errOut)
		}
		if lines := strings.Count(errOut.String(), "\n"); lines != 1 || out.Len() > 0 {
			t.Errorf("%q: %d lines of error: %s%s", args, lines, &errOut, &out)
		}
	}
}
