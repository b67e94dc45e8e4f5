// Package symptoms embeds the pages about symptoms: where to start, what the output means, what it rules
// out.
package symptoms

import (
	"embed"
	"regexp"
	"slices"
	"strings"
)

//go:embed *.md
var files embed.FS

// Page is the page about a symptom.
type Page struct {
	// Name is what `corescope help` accepts, such as slow-disk.
	Name  string
	Title string
	// Markdown is the text of the page.
	Markdown string
}

// All returns the pages by name.
func All() []Page {
	entries, _ := files.ReadDir(".") // cannot fail: the directory is embedded
	var pages []Page
	for _, e := range entries {
		text, _ := files.ReadFile(e.Name())
		title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
		pages = append(pages, Page{strings.TrimSuffix(e.Name(), ".md"), title, string(text)})
	}
	return pages
}

// Find returns the page with the name, given as one word or several: slow-disk, "slow disk".
func Find(words ...string) (Page, bool) {
	name := strings.ToLower(strings.ReplaceAll(strings.Join(words, "-"), " ", "-"))
	all := All()
	i := slices.IndexFunc(all, func(p Page) bool { return p.Name == name })
	if i < 0 {
		return Page{}, false
	}
	return all[i], true
}

// Like returns the names of the pages whose name contains one of the words.
func Like(words ...string) []string {
	var like []string
	for _, p := range All() {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(p.Name, strings.ToLower(w)) }) {
			like = append(like, p.Name)
		}
	}
	return like
}

// Text returns the page as plain text for a terminal.
func (p *Page) Text() string {
	var b strings.Builder
	isCode := false
	for line := range strings.Lines(p.Markdown) {
		switch {
		case strings.HasPrefix(line, "```"):
			isCode = !isCode
			continue
		case isCode:
			b.WriteString("    ")
		case strings.HasPrefix(line, "#"):
			line = strings.ToUpper(strings.TrimLeft(line, "# "))
		default:
			line = strings.ReplaceAll(line, "`", "")
		}
		b.WriteString(line)
	}
	return b.String()
}

// Commands returns the commands of the page whose output it shows: lines that begin with "$ corescope ".
func (p *Page) Commands() []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^\$ corescope (.*)$`).FindAllStringSubmatch(p.Markdown, -1) {
		all = append(all, m[1])
	}
	return all
}
