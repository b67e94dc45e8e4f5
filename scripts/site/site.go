package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// repository is where links to files that are not part of the site lead.
const repository = "https://github.com/corescope/corescope/blob/main/"

//go:embed page.html
var pageHTML string

//go:embed site.css
var siteCSS []byte

//go:embed site.js
var siteJS []byte

// page is a page of the site.
type page struct {
	Title, Section string
	// Source is the file in the tree, URL the file in the site.
	Source, URL string
	Body        template.HTML
	// Root leads from the page to the top of the site: "" or "../".
	Root string
}

// site is all pages and the files that are copied.
type site struct {
	tree  string
	pages []*page
	// urls maps files of the tree to files of the site.
	urls   map[string]string
	assets []string
}

// sections is the order of the navigation.
func sections() []string {
	return []string{"Start", "Symptoms", "Measurements", "Manual", "Schemas", "Project"}
}

// load reads the tree.
func load(tree string) (*site, error) {
	s := &site{tree: tree, urls: map[string]string{}}
	var sources []string
	for _, pattern := range []string{
		"*.md", "docs/*.md", "docs/symptoms/*.md", "deploy/*.md", "packaging/*.md", "man/man1/*.1", "man/man8/*.8", "docs/schema/*.json",
	} {
		files, err := filepath.Glob(filepath.Join(tree, pattern))
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", pattern, err)
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("list %s in %s: there is none", pattern, tree)
		}
		for _, f := range files {
			source, err := filepath.Rel(tree, f)
			if err != nil {
				return nil, fmt.Errorf("name %s: %w", f, err)
			}
			if target, err := os.Readlink(f); err == nil { // an alias of a tool
				s.urls[source] = urlOf(path.Join(path.Dir(source), target))
				continue
			}
			s.urls[source] = urlOf(source)
			sources = append(sources, source)
		}
	}
	assets, _ := filepath.Glob(filepath.Join(tree, "docs/gallery/*"))
	for _, f := range append(assets, filepath.Join(tree, "docs/flamegraph.png")) {
		source, err := filepath.Rel(tree, f)
		if err != nil {
			return nil, fmt.Errorf("name %s: %w", f, err)
		}
		s.urls[source] = source
		s.assets = append(s.assets, source)
	}
	for _, source := range sources {
		p, err := s.read(source)
		if err != nil {
			return nil, fmt.Errorf("convert %s: %w", source, err)
		}
		s.pages = append(s.pages, p)
	}
	order := sections()
	slices.SortStableFunc(s.pages, func(a, b *page) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Section), slices.Index(order, b.Section)), strings.Compare(a.URL, b.URL))
	})
	return s, nil
}

// urlOf returns the file of a page: README.md of the tree is the start.
func urlOf(source string) string {
	switch ext := path.Ext(source); {
	case source == "README.md":
		return "index.html"
	case strings.HasPrefix(source, "man/"):
		return "man/" + path.Base(source) + ".html"
	case ext == ".json":
		return "schema/" + strings.TrimSuffix(path.Base(source), ext) + ".html"
	default:
		return strings.TrimSuffix(source, ext) + ".html"
	}
}

// sectionOf returns the section of the navigation.
func sectionOf(source string) string {
	switch dir := path.Dir(source); {
	case source == "README.md" || source == "docs/cheatsheet.md" || source == "docs/gallery.md":
		return "Start"
	case dir == "docs/symptoms":
		return "Symptoms"
	case strings.HasPrefix(dir, "man"):
		return "Manual"
	case dir == "docs/schema":
		return "Schemas"
	case slices.Contains([]string{"benchmarks", "compatibility", "costs", "stacks", "truth", "faults"}, strings.TrimSuffix(path.Base(source), ".md")):
		return "Measurements"
	}
	return "Project"
}

// read converts a file of the tree.
func (s *site) read(source string) (*page, error) {
	text, err := os.ReadFile(filepath.Join(s.tree, source))
	if err != nil {
		return nil, err
	}
	p := &page{Source: source, URL: urlOf(source), Section: sectionOf(source)}
	p.Root = strings.Repeat("../", strings.Count(p.URL, "/"))
	var body string
	switch path.Ext(source) {
	case ".md":
		body, err = s.markdown(source, text)
		title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
		p.Title = strings.Trim(title, "` ")
	case ".json":
		name := strings.TrimSuffix(path.Base(source), ".json")
		p.Title = name
		body, err = schema(name, text)
	default:
		p.Title = strings.TrimSuffix(path.Base(source), path.Ext(source))
		body = s.roff(p, string(text))
	}
	p.Body = template.HTML(body)
	return p, err
}

// schema renders a JSON schema: the keys with their descriptions, and the schema itself.
func schema(name string, text []byte) (string, error) {
	var parsed any
	if err := json.Unmarshal(text, &parsed); err != nil {
		return "", err
	}
	keys := map[string]string{}
	collect(parsed, keys)
	var b strings.Builder
	fmt.Fprintf(&b, "<h1>%s --output json</h1>\n<p>Keys of the output. The schema itself is below.</p>\n<div class=\"wide\"><table><thead><tr><th>key</th><th>definition</th></tr></thead><tbody>\n", html.EscapeString(name))
	for _, key := range sortedKeys(keys) {
		fmt.Fprintf(&b, "<tr><td><code>%s</code></td><td>%s</td></tr>\n", html.EscapeString(key), html.EscapeString(keys[key]))
	}
	fmt.Fprintf(&b, "</tbody></table></div>\n<h2 id=\"schema\">Schema</h2>\n<pre>%s</pre>\n", html.EscapeString(string(text)))
	return b.String(), nil
}

// collect gathers the properties of a schema that have a description.
func collect(v any, keys map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		if props, ok := v["properties"].(map[string]any); ok {
			for name, prop := range props {
				if m, ok := prop.(map[string]any); ok {
					if text, ok := m["description"].(string); ok && keys[name] == "" {
						keys[name] = text
					}
				}
			}
		}
		for _, e := range v {
			collect(e, keys)
		}
	case []any:
		for _, e := range v {
			collect(e, keys)
		}
	}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// write writes all files.
func (s *site) write(out string) error {
	t, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return fmt.Errorf("parse template: %w", err)
	}
	for _, p := range s.pages {
		var b bytes.Buffer
		if err := t.Execute(&b, map[string]any{"Page": p, "Groups": s.groups(p)}); err != nil {
			return fmt.Errorf("write %s: %w", p.URL, err)
		}
		if err := save(out, p.URL, b.Bytes()); err != nil {
			return err
		}
	}
	for _, a := range s.assets {
		b, err := os.ReadFile(filepath.Join(s.tree, a))
		if err != nil {
			return fmt.Errorf("copy %s: %w", a, err)
		}
		if err := save(out, a, b); err != nil {
			return err
		}
	}
	index, err := s.index()
	if err != nil {
		return err
	}
	for name, b := range map[string][]byte{"site.css": siteCSS, "site.js": siteJS, "search-index.js": index} {
		if err := save(out, name, b); err != nil {
			return err
		}
	}
	return nil
}

func save(out, name string, b []byte) error {
	file := filepath.Join(out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("create directory of %s: %w", name, err)
	}
	if err := os.WriteFile(file, b, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// group is a section of the navigation.
type group struct {
	Name  string
	Open  bool
	Pages []link
}

type link struct {
	Title, URL string
	Current    bool
}

// groups returns the navigation of a page.
func (s *site) groups(current *page) []group {
	var groups []group
	for _, name := range sections() {
		g := group{Name: name, Open: name == current.Section}
		for _, p := range s.pages {
			if p.Section == name {
				g.Pages = append(g.Pages, link{p.Title, current.Root + p.URL, p == current})
			}
		}
		groups = append(groups, g)
	}
	return groups
}

// index returns the script with the search index: for each page its title, section, URL and words.
func (s *site) index() ([]byte, error) {
	type entry struct {
		Title   string `json:"t"`
		Section string `json:"s"`
		URL     string `json:"u"`
		Words   string `json:"w"`
	}
	var entries []entry
	tags := regexp.MustCompile(`<[^>]*>`)
	for _, p := range s.pages {
		text := html.UnescapeString(tags.ReplaceAllString(string(p.Body), " "))
		words := strings.FieldsFunc(strings.ToLower(text), func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '_' })
		slices.Sort(words)
		words = slices.DeleteFunc(slices.Compact(words), func(w string) bool { return len(w) < 3 || len(w) > 30 || unicode.IsDigit(rune(w[0])) })
		entries = append(entries, entry{p.Title, p.Section, p.URL, " " + strings.Join(words, " ")})
	}
	b, err := json.Marshal(entries)
	if err != nil {
		return nil, fmt.Errorf("encode search index: %w", err)
	}
	return slices.Concat([]byte("window.searchIndex = "), b, []byte(";\n")), nil
}
