package symptoms

import (
	"regexp"
	"strings"
	"testing"
)

// TestPages checks that each page has the common sections, commands with output, and that the pages that
// it refers to exist.
func TestPages(t *testing.T) {
	all := All()
	if len(all) < 9 {
		t.Errorf("there are %d pages", len(all))
	}
	for _, p := range all {
		for _, section := range []string{"# " + p.Title + "\n", "\n## Where to start\n", "\n## What it rules out\n", "\n## Next\n"} {
			if !strings.Contains(p.Markdown, section) {
				t.Errorf("%s: the section %q is missing", p.Name, section)
			}
		}
		if len(p.Commands()) < 2 {
			t.Errorf("%s: it has only %d commands", p.Name, len(p.Commands()))
		}
		for _, m := range regexp.MustCompile("(?i)see `([a-z-]+)`").FindAllStringSubmatch(p.Markdown, -1) {
			if _, ok := Find(m[1]); !ok {
				t.Errorf("%s: it refers to %s, which does not exist", p.Name, m[1])
			}
		}
	}
}

func TestFind(t *testing.T) {
	for _, words := range [][]string{{"slow-disk"}, {"slow", "disk"}, {"Slow disk"}} {
		if p, ok := Find(words...); !ok || p.Name != "slow-disk" {
			t.Errorf("%q: found %q", words, p.Name)
		}
	}
	if _, ok := Find("nothing"); ok {
		t.Error("found nothing")
	}
}

func TestText(t *testing.T) {
	p := Page{Markdown: "# A b\n\nSee `x`.\n\n```\n$ corescope x\n`y` # z\n```\n"}
	if got, want := p.Text(), "A B\n\nSee x.\n\n    $ corescope x\n    `y` # z\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
