package tools_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools"
)

// example splits an example of a tool into the command and its purpose.
func example(text string) (command, purpose string) {
	command, purpose, _ = strings.Cut(text, "# ")
	return strings.TrimSpace(command), purpose
}

// TestCheatSheet compares docs/cheatsheet.md with the definitions of the tools, whose examples
// the definition itself checks (tool.Tool.Check).
func TestCheatSheet(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Cheat sheet\n\nTwo commands of each tool. `corescope man TOOL` has more, and the definition of each column. All tools have\n" +
		"`--pid`, `--comm`, `--container`, `--duration`, `--output json` and `--filter`, where they apply. The file is generated.\n")
	category := ""
	all := slices.Clone(tools.All())
	slices.SortStableFunc(all, func(a, b *tool.Tool) int { return strings.Compare(a.Category, b.Category) })
	for _, tl := range all {
		if tl.Category != category {
			category = tl.Category
			fmt.Fprintf(&b, "\n## %s\n\n| command | purpose |\n|---|---|\n", strings.ToUpper(category[:1])+category[1:])
		}
		for i, text := range tl.Examples {
			if command, purpose := example(text); i < 2 {
				fmt.Fprintf(&b, "| `%s` | %s |\n", strings.ReplaceAll(command, "|", `\|`), strings.ReplaceAll(purpose, "|", `\|`))
			}
		}
	}
	compareFile(t, "../docs/cheatsheet.md", b.String())
}

// compareFile compares a generated file with its content, or writes it.
func compareFile(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the definitions of the tools: run make docs", path)
	}
}

// inTldr lists the tools that have a page in packaging/tldr.
func inTldr() []string {
	return []string{
		"biolatency", "biosnoop", "biotop", "cachestat", "capable", "cpudist", "dnssnoop", "execsnoop", "exitsnoop",
		"filetop", "fsslower", "funccount", "funclatency", "gethostlatency", "memleak", "offcputime", "oomkill", "opensnoop",
		"packetsnoop", "profile", "runqlat", "runqslower", "sigsnoop", "sslsniff", "stackcount", "syscount", "tcpconnect",
		"tcpdrop", "tcplife", "tcpretrans", "tcptop", "throttletop", "trace",
	}
}

// tldrPage returns the page of a tool in the format of the tldr-pages project: at most 8 examples, and
// {{values}} that the user replaces.
func tldrPage(tl *tool.Tool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# corescope %s\n\n> %s.\n> More information: <https://github.com/corescope/corescope>.\n", tl.Name, tl.Summary)
	for i, text := range tl.Examples {
		if command, purpose := example(text); i < 8 {
			fmt.Fprintf(&b, "\n- %s:\n\n`sudo corescope %s`\n", strings.ToUpper(purpose[:1])+purpose[1:], withPlaceholders(command))
		}
	}
	return b.String()
}

// withPlaceholders marks numbers, paths and quoted words as values that the user replaces.
func withPlaceholders(command string) string {
	return regexp.MustCompile(`(^|[ =])('[^']*'|"[^"]*"|[0-9][0-9a-z.,]*|/[^ ]+)`).ReplaceAllString(command, "$1{{$2}}")
}

// TestTldr compares packaging/tldr with the definitions of the tools, and parses the commands of the pages.
func TestTldr(t *testing.T) {
	const dir = "../packaging/tldr"
	names := map[string]bool{}
	for _, name := range inTldr() {
		i := slices.IndexFunc(tools.All(), func(tl *tool.Tool) bool { return tl.Name == name })
		if i < 0 {
			t.Errorf("there is no tool %s", name)
			continue
		}
		tl := tools.All()[i]
		file := "corescope-" + name + ".md"
		names[file] = true
		compareFile(t, filepath.Join(dir, file), tldrPage(tl))
		checkTldr(t, tl, filepath.Join(dir, file))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !names[e.Name()] {
			t.Errorf("%s belongs to no tool", e.Name())
		}
	}
}

// checkTldr checks the format of a page, and that its commands are valid without the braces.
func checkTldr(t *testing.T, tl *tool.Tool, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "`sudo corescope ")
		if !ok {
			continue
		}
		n++
		command = strings.NewReplacer("{{", "", "}}", "", "`", "").Replace(command)
		if !strings.HasPrefix(command, tl.Name) {
			t.Errorf("%s: %s is a command of another tool", path, command)
		}
		if !slices.ContainsFunc(tl.Examples, func(e string) bool { c, _ := example(e); return c == command }) {
			t.Errorf("%s: %s is no example of the tool, so nothing checks it", path, command)
		}
	}
	if n == 0 || n > 8 {
		t.Errorf("%s has %d commands, want 1 to 8", path, n)
	}
}
