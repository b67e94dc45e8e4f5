package tools_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/tools"
)

// peerFlag is a line of testdata/flags.tsv: a flag of the tool of that name in BCC or libbpf-tools.
type peerFlag struct {
	tool, peers string
	short, long string // "-p" and "--pid"; one of them can be empty
	// difference is what the test finds here, and reason why it is so. Both are empty if the letter and
	// the long name are the same flag here.
	difference, reason string
}

func peerFlags(t *testing.T) (all []peerFlag) {
	t.Helper()
	data, err := os.ReadFile("testdata/flags.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		cells := strings.Split(line, "\t")
		if len(cells) != 6 {
			t.Fatalf("line %d of flags.tsv has %d cells, want 6: %q", i+1, len(cells), line)
		}
		if i > 0 {
			all = append(all, peerFlag{cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]})
		}
	}
	return all
}

// TestPeerFlags looks up each flag of the peers by its letter and by its long name: both must be the same
// flag of our tool of that name, except where the data states a difference and its reason.
func TestPeerFlags(t *testing.T) {
	ours := map[string][]flags.Flag{}
	for _, tl := range tools.All() {
		for _, name := range tl.Names() {
			facts, err := tl.As(name).Facts()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, group := range facts.Flags {
				ours[name] = append(ours[name], group.Flags...)
			}
		}
	}
	same, all := 0, peerFlags(t)
	for _, p := range all {
		if ours[p.tool] == nil {
			t.Errorf("there is no tool %s", p.tool)
			continue
		}
		got := p.compare(ours[p.tool])
		if got == "" {
			same++
		}
		if got != p.difference || (got == "") != (p.reason == "") {
			t.Errorf("%s: %s %s of %s: difference %q, want %q with a reason, which is %q", p.tool, p.short, p.long, p.peers, got, p.difference, p.reason)
		}
	}
	t.Logf("%d flags of peers, %d are the same here", len(all), same)
}

// compare returns how the flag differs from ours, or "".
func (p *peerFlag) compare(ours []flags.Flag) string {
	var missing []string
	short, long := "", ""
	if p.short != "" {
		if short = find(ours, func(f *flags.Flag) bool { return "-"+f.Short == p.short }); short == "" {
			missing = append(missing, p.short)
		}
	}
	if p.long != "" {
		if long = longName(ours, strings.ReplaceAll(strings.TrimPrefix(p.long, "--"), "_", "-")); long == "" {
			missing = append(missing, p.long)
		}
	}
	switch {
	case len(missing) > 0:
		return "no " + strings.Join(missing, ", no ")
	case short != "" && long != "" && short != long:
		return fmt.Sprintf("%s is --%s, %s is --%s", p.short, short, p.long, long)
	}
	return ""
}

// longName returns the flag with a long name, or the only one that starts with it: flags can be
// abbreviated.
func longName(ours []flags.Flag, name string) string {
	isName := func(f *flags.Flag) bool { return f.Long == name || f.Also == name }
	if exact := find(ours, isName); exact != "" {
		return exact
	}
	var starting []string
	for i := range ours {
		if f := &ours[i]; strings.HasPrefix(f.Long, name) || strings.HasPrefix(f.Also, name) {
			starting = append(starting, f.Long)
		}
	}
	if len(slices.Compact(starting)) == 1 {
		return starting[0]
	}
	return ""
}

// find returns the long name of the first flag for which match returns true, or "".
func find(ours []flags.Flag, match func(*flags.Flag) bool) string {
	for i := range ours {
		if match(&ours[i]) {
			return ours[i].Long
		}
	}
	return ""
}
