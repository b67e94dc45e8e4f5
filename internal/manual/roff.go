package manual

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Roff returns the page in the man(7) language, for groff and mandoc. It contains no date,
// so that the output is reproducible.
func (p *Page) Roff() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s %s \"\" corescope \"corescope manual\"\n", escape(strings.ToUpper(p.name)), p.section)
	// Disable hyphenation and adjustment, so that words can be searched for.
	b.WriteString(".nh\n.ad l\n")
	for _, block := range p.blocks {
		b.WriteString(block.roff())
	}
	return b.String()
}

func (b block) roff() string {
	switch b.kind {
	case heading:
		return fmt.Sprintf(".SH %s\n", escape(b.text))
	case subheading:
		return fmt.Sprintf(".SS %s\n", escape(b.text))
	case bullet:
		return ".IP \\(bu 2\n" + lines(b.text)
	case item:
		return fmt.Sprintf(".TP\n%s\n%s", tagRoff(b.tag, b.arg), lines(b.text))
	case example:
		return ".PP\n.in +4n\n.nf\n" + lines(b.text) + ".fi\n.in\n"
	}
	return ".PP\n" + lines(b.text)
}

func tagRoff(tag, arg string) string {
	if arg == "" {
		return `\fB` + escape(tag) + `\fR`
	}
	return `\fB` + escape(tag) + `\fR \fI` + escape(arg) + `\fR`
}

// lines escapes text of several lines. A leading dot would start a roff request.
func lines(text string) string {
	if text == "" {
		return ""
	}
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		if strings.HasPrefix(line, ".") {
			b.WriteString(`\&`)
		}
		b.WriteString(escape(line) + "\n")
	}
	return b.String()
}

// special replaces characters that roff interprets or prints as other ones: a plain hyphen
// or quote is printed as a typographic one, which shells do not accept.
var special = strings.NewReplacer(
	`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `"`, `\(dq`, `^`, `\(ha`, `~`, `\(ti`,
)

// escape returns text that roff prints literally. Non-ASCII characters are written as code
// points, because not every roff implementation reads UTF-8.
func escape(text string) string {
	var b strings.Builder
	for _, r := range special.Replace(text) {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}
