// Package manual renders manual pages, as roff for man(1) or as plain text. A Page is a
// sequence of sections, paragraphs, items and examples, independent of the output format.
package manual

import "strings"

// Page is a manual page. Its methods append content in the order of the calls.
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

// block is an element of a page. Only items have a tag and an argument.
type block struct {
	kind     kind
	tag, arg string
	text     string
}

// New returns a page of the given manual section, such as "8". The first name is the
// title. The page starts with the section NAME: all names and a one-line summary.
func New(section, summary string, names ...string) *Page {
	p := &Page{name: names[0], section: section}
	p.Section("NAME")
	p.Text(strings.Join(names, ", ") + " - " + summary)
	return p
}

// Section starts a section.
func (p *Page) Section(title string) { p.add(block{kind: heading, text: title}) }

// Subsection starts a subsection.
func (p *Page) Subsection(title string) { p.add(block{kind: subheading, text: title}) }

// Text adds paragraphs, which are separated by empty lines in text. Single line breaks
// become spaces.
func (p *Page) Text(text string) {
	for para := range strings.SplitSeq(text, "\n\n") {
		if para = unwrap(para); para != "" {
			p.add(block{kind: paragraph, text: para})
		}
	}
}

// Bullet adds an item of a bulleted list.
func (p *Page) Bullet(text string) { p.add(block{kind: bullet, text: unwrap(text)}) }

// Item adds a tag in bold, with its argument in italics, and an indented text below it.
func (p *Page) Item(tag, arg, text string) {
	p.add(block{item, tag, arg, unwrap(text)})
}

// Code adds preformatted lines.
func (p *Page) Code(lines string) { p.add(block{kind: example, text: lines}) }

func (p *Page) add(b block) { p.blocks = append(p.blocks, b) }

// unwrap joins the lines of text to one.
func unwrap(text string) string { return strings.Join(strings.Fields(text), " ") }
