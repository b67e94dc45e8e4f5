package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// markdown converts Markdown to HTML. Links to files of the tree become links to their pages, or to the
// repository.
func (s *site) markdown(source string, src []byte) (string, error) {
	md := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Linkify), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	doc := md.Parser().Parse(text.NewReader(src))
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var err error
		switch n := n.(type) {
		case *ast.Link:
			n.Destination, err = s.target(source, n.Destination)
		case *ast.Image:
			n.Destination, err = s.target(source, n.Destination)
		}
		return ast.WalkContinue, err
	})
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := md.Renderer().Render(&b, src, doc); err != nil {
		return "", err
	}
	out := strings.ReplaceAll(b.String(), "<table>", `<div class="wide"><table>`)
	return strings.ReplaceAll(out, "</table>", "</table></div>"), nil
}

// target returns the destination of a link of a page, relative to the page.
func (s *site) target(source string, destination []byte) ([]byte, error) {
	link := string(destination)
	if link == "" || link[0] == '#' || strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return destination, nil
	}
	file, anchor, hasAnchor := strings.Cut(link, "#")
	file = path.Join(path.Dir(source), file)
	info, err := os.Stat(filepath.Join(s.tree, file))
	if err != nil {
		return nil, fmt.Errorf("%s: dead link %s", source, link)
	}
	if info.IsDir() {
		if readme := path.Join(file, "README.md"); s.urls[readme] != "" {
			file = readme
		}
	}
	url := s.urls[file]
	if url == "" {
		return []byte(repository + file), nil
	}
	url = strings.Repeat("../", strings.Count(urlOf(source), "/")) + url
	if hasAnchor {
		url += "#" + anchor
	}
	return []byte(url), nil
}

// roff converts a manual page that internal/manual has written, which uses a few requests only.
func (s *site) roff(p *page, src string) string {
	var b strings.Builder
	isCode, isList := false, false
	tag := false // the next line is the tag of an item
	closeList := func() {
		if isList {
			b.WriteString("</dd></dl>\n")
		}
		isList = false
	}
	for line := range strings.Lines(src) {
		line = strings.TrimSuffix(line, "\n")
		request, arg, _ := strings.Cut(line, " ")
		switch {
		case isCode && request != ".fi":
			b.WriteString(s.inline(p, line) + "\n")
		case request == ".TH":
			fmt.Fprintf(&b, "<h1>%s</h1>\n", html.EscapeString(strings.TrimSuffix(path.Base(p.URL), ".html")))
		case request == ".SH" || request == ".SS":
			closeList()
			level := map[string]int{".SH": 2, ".SS": 3}[request]
			fmt.Fprintf(&b, "<h%d id=\"%s\">%s</h%d>\n", level, anchorOf(unroff(arg)), s.inline(p, strings.Trim(arg, `"`)), level)
		case request == ".PP":
			closeList()
		case request == ".nf":
			b.WriteString("<pre>")
			isCode = true
		case request == ".fi":
			b.WriteString("</pre>\n")
			isCode = false
		case request == ".TP":
			closeList()
			tag = true
		case request == ".IP":
			closeList()
			b.WriteString("<dl class=\"bullet\"><dt>•</dt><dd>")
			isList = true
		case strings.HasPrefix(line, ".") && len(request) <= 3:
			// .nh, .ad, .in: layout
		case tag:
			fmt.Fprintf(&b, "<dl><dt>%s</dt><dd>", s.inline(p, line))
			isList, tag = true, false
		case isList:
			b.WriteString(s.inline(p, line) + "\n")
		default:
			fmt.Fprintf(&b, "<p>%s</p>\n", s.inline(p, line))
		}
	}
	closeList()
	return b.String()
}

// unroff replaces the escapes of roff by their characters.
func unroff(line string) string {
	line = strings.TrimPrefix(line, `\&`)
	return strings.NewReplacer(`\-`, "-", `\(aq`, "'", `\(bu`, "•", `\(ga`, "`", `\(ti`, "~", `\(ha`, "^", `\(dq`, `"`, `\e`, `\`, `\&`, "", `\(rs`, `\`).Replace(line)
}

// inline converts a line: fonts, and references such as runqlat(8), which become links.
func (s *site) inline(p *page, line string) string {
	out := html.EscapeString(unroff(line))
	out = regexp.MustCompile(`\\fB(.*?)\\fR`).ReplaceAllString(out, "<b>$1</b>")
	out = regexp.MustCompile(`\\fI(.*?)\\fR`).ReplaceAllString(out, "<i>$1</i>")
	return regexp.MustCompile(`\b([a-z][a-z0-9_-]*)\(([18])\)`).ReplaceAllStringFunc(out, func(ref string) string {
		name, section, _ := strings.Cut(strings.TrimSuffix(ref, ")"), "(")
		url := s.urls["man/man"+section+"/"+name+"."+section]
		if url == "" {
			return ref
		}
		return fmt.Sprintf(`<a href="%s%s">%s</a>`, p.Root, url, ref)
	})
}

// anchorOf returns the ID of a heading.
func anchorOf(title string) string {
	return strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(title), "-"), "-")
}
