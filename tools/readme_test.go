package tools_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools"
)

// TestReadmeFlags compares the README's table of common features with each tool.
func TestReadmeFlags(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "\n## Common features\n")
	table, _, _ = strings.Cut(table, "\n\n`corescope man")
	flag := regexp.MustCompile(`--([a-z-]+)`)
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if len(cells) != 2 || !strings.HasPrefix(line, "| `--") {
			continue
		}
		rows++
		exceptHistograms := strings.Contains(cells[1], "not for histograms")
		exceptTaskless := strings.Contains(cells[1], "not for events without a task")
		for _, tl := range tools.All() {
			facts, err := tl.Facts()
			if err != nil {
				t.Fatal(err)
			}
			if exceptTaskless && tl.NoPrograms {
				continue // such flags select what it lists
			}
			for _, match := range flag.FindAllStringSubmatch(cells[0], -1) {
				want := (!exceptHistograms || facts.Kind != "histogram") && (!exceptTaskless || tl.Tasks)
				// A tool without the task filter can have one of these flags with its own meaning.
				if has := hasFlag(facts, match[1]); has != want && (want || !exceptTaskless) {
					t.Errorf("%s has --%s: %v, want %v as in the README", tl.Name, match[1], has, want)
				}
			}
		}
	}
	if rows < 7 {
		t.Errorf("the README's table has %d rows, want 7", rows)
	}
}

// TestBpftracePage checks that the commands in docs/bpftrace.md are valid.
func TestBpftracePage(t *testing.T) {
	page, err := os.ReadFile("../docs/bpftrace.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("`corescope ([^`]+)`").FindAllStringSubmatch(string(page), -1)
	for _, c := range commands {
		name, _, _ := strings.Cut(c[1], " ")
		found := false
		for _, tl := range tools.All() {
			if named := tl.As(name); named != nil {
				found = true
				if _, err := named.Header(tool.ExampleArgs(c[1])...); err != nil {
					t.Errorf("%s: %v", c[1], err)
				}
			}
		}
		if !found {
			t.Errorf("%s: there is no tool %s", c[1], name)
		}
	}
	if len(commands) < 20 {
		t.Errorf("the page has %d commands", len(commands))
	}
}
