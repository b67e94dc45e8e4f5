package tools

import (
	"errors"
	"testing"

	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestExportedHistograms loads and attaches each tool with histograms as it is for exported output: with
// exponential slots, with a single histogram and with the options that have the largest keys.
func TestExportedHistograms(t *testing.T) {
	tooltest.Root(t)
	lines := map[string][][]string{
		"argdist":      {{"-H", "p:c:getpid():int:1"}},
		"funcinterval": {{"c:getpid"}},
		"funclatency":  {{"c:getpid"}, {"-F", "c:getpid"}},
		"fsdist":       {{"-t", "ext4"}, {"-t", "ext4,xfs", "--pids", "--cgroups"}},
		"runqlat":      {nil, {"-L", "--reasons", "--cgroups"}},
		"cpudist":      {nil, {"--offcpu", "-L", "--cgroups"}},
		"hardirqs":     {{"-d"}},
		"softirqs":     {{"-d"}},
		"runqlen":      {nil, {"--cpus"}},
		"tcpcong":      {{"-d"}},
		"biolatency":   {nil, {"-D", "-F", "--cgroups"}},
	}
	tested := 0
	for _, tl := range All() {
		if _, ok := lines[tl.Name]; !ok {
			lines[tl.Name] = [][]string{nil}
		}
		for _, args := range lines[tl.Name] {
			o, err := (&tool.Stream{Tool: tl, Args: args}).Outline()
			if err != nil || o.Kind != output.KindHistogram {
				continue
			}
			tested++
			t.Run(tl.Name, func(t *testing.T) { exportsHistograms(t, tl, args) })
		}
	}
	if tested < 22 {
		t.Errorf("%d command lines have histograms", tested)
	}
}

func exportsHistograms(t *testing.T, tl *tool.Tool, args []string) {
	run, err := tooltest.TryExport(t, tl, args, func() {})
	if errors.Is(err, probe.ErrUnsupported) || errors.Is(err, probe.ErrNoVariant) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	for _, h := range run.Histograms {
		h.CheckBuckets(t)
	}
}
