package flame

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

//go:embed graph.js
var script string

//go:embed graph.css
var style string

// Sizes in pixels of the SVG image. In a page, the head and foot are HTML elements.
const (
	graphWidth = 1200
	rowHeight  = 17
	headHeight = 40
	footHeight = 24
	// letterWidth is the width of a character.
	letterWidth = 7.3
	// Narrower functions are omitted, and the title states how many. A page has narrower functions
	// than an image, because it hides those below half a pixel until they are zoomed.
	minWidthSVG  = 0.5
	minWidthPage = 0.1
)

// SVG writes a flame graph as an image with scripts for search and zoom. It needs no other files.
func SVG(w io.Writer, p *Profile) error {
	g := newGraph(p, headHeight, minWidthSVG)
	height := headHeight + (g.depth+1)*rowHeight + footHeight
	g.printf(`<?xml version="1.0" encoding="UTF-8" standalone="no"?>` + "\n")
	g.printf(`<svg id="flame" xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" data-height="%d">`+"\n", graphWidth, height, rowHeight)
	g.printf("<style>%s</style>\n<rect class=\"back\" width=\"100%%\" height=\"100%%\"/>\n", style)
	g.printf(`<text class="title" x="%d" y="16">%s</text>`+"\n", graphWidth/2, html.EscapeString(g.title()))
	g.printf(`<text class="button" id="reset" x="8" y="32">reset</text><text class="button" id="search" x="%d" y="32">search</text>`+"\n", graphWidth-56)
	g.key(70)
	g.printf(`<text id="details" x="8" y="%d"> </text><text id="matched" x="%d" y="%d"> </text>`+"\n", height-8, graphWidth-8, height-8)
	g.frames()
	g.printf("<script><![CDATA[%s]]></script>\n</svg>", script)
	_, err := w.Write(g.b)
	return err
}

// HTML writes a flame graph as a page with scripts for search and zoom. It needs no other files.
func HTML(w io.Writer, p *Profile) error {
	g := newGraph(p, 0, minWidthPage)
	title := html.EscapeString(g.title())
	g.printf("<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>%s</title><style>%s</style></head>\n<body>\n", html.EscapeString(p.Title), style)
	g.printf("<header><h1 title=\"%s\">%s</h1><output id=\"matched\"> </output>", title, title)
	for _, k := range g.profile.Unit.key() {
		g.printf("<span style=\"color:%s\">%s</span>", k.colour, k.what)
	}
	g.printf("<input id=\"search\" type=\"search\" placeholder=\"search (regular expression)\"><button id=\"reset\">reset zoom</button></header>\n")
	g.printf(`<main><svg id="flame" height="%d" data-height="%d">`+"\n", (g.depth+1)*rowHeight, rowHeight)
	g.frames()
	g.printf("</svg></main>\n<footer id=\"details\"> </footer>\n<script>%s</script>\n</body>\n</html>\n", script)
	_, err := w.Write(g.b)
	return err
}

// graph is a flame graph that is being written.
type graph struct {
	profile  *Profile
	root     *node
	top      int     // y coordinate of the topmost row
	minWidth float64 // of functions that are drawn
	depth    int     // of the deepest function that is drawn
	omitted  int     // number of functions that are too narrow
	b        []byte
}

func newGraph(p *Profile, top int, minWidth float64) *graph {
	g := &graph{profile: p, root: newTree(p.Samples), top: top, minWidth: minWidth}
	g.measure(g.root, 0)
	return g
}

// measure determines the depth of the graph and counts omitted functions.
func (g *graph) measure(n *node, depth int) {
	g.depth = max(g.depth, depth)
	for _, c := range n.children {
		if g.width(c) < g.minWidth {
			g.omitted++
			continue
		}
		g.measure(c, depth+1)
	}
}

// width returns the width of a function in pixels.
func (g *graph) width(n *node) float64 {
	return graphWidth * float64(n.weight) / float64(max(1, g.root.weight))
}

func (g *graph) printf(format string, args ...any) { g.b = fmt.Appendf(g.b, format, args...) }

// key writes the colour key, starting at x.
func (g *graph) key(x int) {
	for _, k := range g.profile.Unit.key() {
		g.printf(`<text x="%d" y="32" fill="%s">%s</text>`+"\n", x, k.colour, k.what)
		x += int(letterWidth*float64(len(k.what))) + 20
	}
}

// frames writes all functions.
func (g *graph) frames() {
	g.b = append(g.b, "<g id=\"frames\">\n"...)
	g.draw(g.root, 0, 0)
	g.b = append(g.b, "</g>\n"...)
}

// title returns the title: the tool, the total weight, the duration and the start.
func (g *graph) title() string {
	p := g.profile
	title := fmt.Sprintf("%s: %s in %s from %s", p.Title, p.Unit.words(g.root.weight), p.Length.Round(time.Millisecond), p.Begin.Format(time.DateTime))
	if g.omitted > 0 {
		title += fmt.Sprintf(" (%d functions below %.2f%% omitted)", g.omitted, 100*g.minWidth/graphWidth)
	}
	return title
}

// words returns a weight with its unit.
func (u Unit) words(weight uint64) string {
	if u == Nanoseconds {
		return rounded(time.Duration(weight)).String()
	}
	return strconv.FormatUint(weight, 10) + " " + string(u)
}

// rounded rounds a duration to about six digits.
func rounded(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(time.Microsecond)
	}
	return d
}

// draw draws a function at x, and the functions that it called above it.
func (g *graph) draw(n *node, x float64, depth int) {
	width := g.width(n)
	y := g.top + (g.depth-depth)*rowHeight
	share := 100 * float64(n.weight) / float64(max(1, g.root.weight))
	name := html.EscapeString(n.frame.Name)
	g.printf(`<g class="f" data-x="%.3f" data-w="%.3f" data-d="%d" data-v="%d"><title>%s (%s, %.2f%%)</title><rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s"/><text x="%.2f" y="%d">%s</text></g>`+"\n",
		x, width, depth, n.weight, name, g.profile.Unit.words(n.weight), share,
		x, y, drawn(width), rowHeight-1, g.profile.Unit.colour(n.frame), x+3, y+rowHeight-5, html.EscapeString(clip(n.frame.Name, width)))
	for _, c := range n.children {
		if g.width(c) >= g.minWidth {
			g.draw(c, x, depth+1)
		}
		x += g.width(c)
	}
}

// drawn returns the width to draw, with a gap to the next function unless it is narrow.
func drawn(width float64) float64 {
	if width > 2 {
		return width - 0.5
	}
	return width
}

// clip shortens a name to a width in pixels. It removes the directories of the package first.
func clip(name string, width float64) string {
	maxLength := int((width - 6) / letterWidth)
	if utf8.RuneCountInString(name) > maxLength {
		name = withoutDirectories(name)
	}
	runes := []rune(name)
	switch {
	case len(runes) <= maxLength:
		return name
	case maxLength < 3:
		return ""
	}
	return string(runes[:maxLength-2]) + ".."
}

// withoutDirectories removes the directories of the package from a function name, but nothing from
// types and arguments, or from names without a package such as kworker/0:1.
func withoutDirectories(name string) string {
	end := len(name)
	if i := strings.IndexAny(name, " (<["); i >= 0 {
		end = i
	}
	at := strings.LastIndexByte(name[:end], '/') + 1
	if !strings.Contains(name[at:end], ".") {
		return name
	}
	return name[at:]
}
