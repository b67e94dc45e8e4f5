package manual

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

// awkward contains text that roff would interpret or print as other characters.
const awkward = `.so \fB 'a' "b" ` + "`c`" + ` ~d ^e --f-g ü … \\ %h`

func samplePage() *Page {
	p := New("8", "shows samples", "sample-tool")
	p.Section("OPTIONS")
	p.Subsection("Of its own")
	p.Item("-x, --some-flag", "NAME", "what\nit does")
	p.Item("", "interval", "seconds")
	p.Bullet("a point")
	p.Text("One\nparagraph.\n\n.another with 'quotes'\n\n\n")
	p.Code("sample-tool -x\n.dot")
	return p
}

func TestRoff(t *testing.T) {
	want := `.TH SAMPLE\-TOOL 8 "" corescope "corescope manual"
.nh
.ad l
.SH NAME
.PP
sample\-tool \- shows samples
.SH OPTIONS
.SS Of its own
.TP
\fB\-x, \-\-some\-flag\fR \fINAME\fR
what it does
.TP
\fB\fR \fIinterval\fR
seconds
.IP \(bu 2
a point
.PP
One paragraph.
.PP
\&.another with \(aqquotes\(aq
.PP
.in +4n
.nf
sample\-tool \-x
\&.dot
.fi
.in
`
	if got := samplePage().Roff(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestString(t *testing.T) {
	want := `SAMPLE-TOOL(8)

NAME

       sample-tool - shows samples

OPTIONS

   Of its own

       -x, --some-flag NAME
              what it does

       interval
              seconds

       - a point

       One paragraph.

       .another with 'quotes'

           sample-tool -x
           .dot
`
	if got := samplePage().String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestStringWraps(t *testing.T) {
	p := New("1", "y", "x")
	p.Bullet(strings.Repeat("wörd ", 60))
	p.Text(strings.Repeat("w", 100) + " end")
	for line := range strings.SplitSeq(p.String(), "\n") {
		if n := utf8.RuneCountInString(line); n > width && !strings.Contains(line, "www") {
			t.Errorf("line has %d columns: %q", n, line)
		}
	}
}

// groff prints special characters literally in every kind of block, without warnings.
func TestGroffPrintsLiterally(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed")
	}
	p := New("1", awkward, "x")
	p.Section(awkward)
	p.Item("tag", "", awkward)
	p.Bullet(awkward)
	p.Text(awkward)
	p.Code(awkward)
	cmd := exec.Command(groff, "-man", "-ww", "-Tutf8", "-P-cbou")
	cmd.Stdin = strings.NewReader(p.Roff())
	var warnings bytes.Buffer
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	if err != nil || warnings.Len() > 0 {
		t.Fatalf("groff: %v: %s", err, &warnings)
	}
	if n := strings.Count(string(out), awkward); n != 6 {
		t.Errorf("%d of 6 blocks are printed literally: %s", n, out)
	}
}
