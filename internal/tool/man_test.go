package tool

import (
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/system"
)

func manualText(t *testing.T, f *fake) string {
	t.Helper()
	facts, err := f.tool().Facts()
	if err != nil {
		t.Fatal(err)
	}
	return facts.Manual().String()
}

// TestManual checks that the manual page contains each part of a tool's definition, in its section.
func TestManual(t *testing.T) {
	f := newFake()
	f.spec.Also = []Alias{{"bogus", []string{"--failed"}}}
	f.spec.Peers = []string{"-x is another."}
	f.spec.Overhead = "1 ns a call."
	f.spec.Capabilities = []system.Capability{system.CapSyslog}
	f.Optional = []string{"open"}
	text := manualText(t, f)
	for _, want := range []string{
		"NAME\n\n       fake, bogus - Show <nothing>\n",
		"SYNOPSIS\n\n           fake [flags] [interval [count]]\n           bogus [flags] [interval [count]]\n           corescope fake",
		"DESCRIPTION\n\n       Shows nothing.\n",
		"       bogus\n              fake --failed\n",
		"OPTIONS\n\n   Flags\n\n       -x, --failed\n              only failures\n\n       interval\n              seconds (at least 1)\n",
		"   Common flags\n\n       --columns a,b,c\n",
		"COLUMNS\n\n       Text shows the columns time, comm by default",
		"       note\n              why; on demand\n",
		"   open\n\n       Optional: the tool also runs without this hook, but then reports less.\n\n       btf\n              tp_btf/sys_exit; needs",
		"   iterators\n\n       Existing objects are listed by iterators: programs that the kernel runs\n       once for each object of a type.\n\n       iter/task\n              needs the kernel",
		"EXAMPLES\n\n       fake -x --filter 'comm == \"a | b\"' | head\n              failures\n",
		"EXIT STATUS\n\n       0\n",
		"OVERHEAD\n\n       1 ns a call.\n",
		"PRIVILEGES\n\n       Needs CAP_BPF, CAP_PERFMON, CAP_SYSLOG, or root.",
		"DIFFERENCES\n",
		"       - -x is another.\n",
	} {
		_, text, _ = strings.Cut(text, "\n\n"+want)
		if text == "" {
			t.Fatalf("missing, or in the wrong order: %q in:\n%s", want, manualText(t, f))
		}
		text = "\n\n" + text
	}
}

func TestManualOfHistograms(t *testing.T) {
	f := newFake()
	f.shows, f.row = output.KindHistogram, &histogram.Stats{}
	f.labels, _ = column.Of(&struct {
		Disk string `json:"disk" help:"which disk"`
	}{})
	text := manualText(t, f)
	for _, want := range []string{"       disk\n              which disk\n", "       p99\n", "       histogram\n              One histogram"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "--columns") {
		t.Error("--columns is in it")
	}
}
