// Package manual writes manual pages: as roff, for man(1), or as plain text. A page
// is made once, of sections, paragraphs, items and examples, and knows neither.
package manual

import "strings"

// Page is a manual page. Its methods add to it, in order.
type Page struct {
	name    string
	section string
	blocks  []block
}

type kind int

const (
	heading kind = iota
	subheading
	paragraph
	bullet
	item
	example
)

// block is one part of a page. Only items have a tag and an argument.
type block struct {
	kind     kind
	tag, arg string
	text     string
}

// New returns a page in a section of the manual: "8". It is called by the first of the
// names. The first heading is NAME, with all names and a summary of one line.
func New(section, summary string, names ...string) *Page {
	p := &Page{name: names[0], section: section}
	p.Section("NAME")
	p.Text(strings.Join(names, ", ") + " - " + summary)
	return p
}

// Section begins a section.
func (p *Page) Section(title string) { p.add(block{kind: heading, text: title}) }

// Subsection begins a part of a section.
func (p *Page) Subsection(title string) { p.add(block{kind: subheading, text: title}) }

// Text adds paragraphs, which are apart by an empty line. Their own line ends are
// spaces.
func (p *Page) Text(text string) {
	for para := range strings.SplitSeq(text, "\n\n") {
		if para = join(para); para != "" {
			p.add(block{kind: paragraph, text: para})
		}
	}
}

// Bullet adds a member of a list.
func (p *Page) Bullet(text string) { p.add(block{kind: bullet, text: join(text)}) }

// Item adds a tag, in bold, with its argument, in italics, and the text below it.
func (p *Page) Item(tag, arg, text string) {
	p.add(block{item, tag, arg, join(text)})
}

// Code adds lines that are shown as they are.
func (p *Page) Code(lines string) { p.add(block{kind: example, text: lines}) }

func (p *Page) add(b block) { p.blocks = append(p.blocks, b) }

// join makes one line of text.
func join(text string) string { return strings.Join(strings.Fields(text), " ") }
