package manual

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// width is the line width of plain text. Text is indented by indent columns, text of items
// by twice as many.
const (
	width  = 79
	indent = 7
)

// String returns the page for a terminal of 80 columns, without control characters.
func (p *Page) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s(%s)\n", strings.ToUpper(p.name), p.section)
	for _, block := range p.blocks {
		b.WriteString("\n" + block.plain())
	}
	return b.String()
}

func (b block) plain() string {
	switch b.kind {
	case heading:
		return b.text + "\n"
	case subheading:
		return "   " + b.text + "\n"
	case bullet:
		return strings.Repeat(" ", indent) + "- " + strings.TrimLeft(wrap(b.text, indent+2), " ")
	case item:
		tag := strings.TrimSpace(b.tag + " " + b.arg)
		return wrap(tag, indent) + wrap(b.text, 2*indent)
	case example:
		return indented(strings.TrimRight(b.text, "\n"), indent+4)
	}
	return wrap(b.text, indent)
}

func indented(text string, left int) string {
	margin := strings.Repeat(" ", left)
	return margin + strings.ReplaceAll(text, "\n", "\n"+margin) + "\n"
}

// wrap breaks text into indented lines at spaces. It does not break words that are wider
// than a line.
func wrap(text string, left int) string {
	if text == "" {
		return ""
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && left+utf8.RuneCountInString(line+" "+word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return indented(strings.Join(append(lines, line), "\n"), left)
}
