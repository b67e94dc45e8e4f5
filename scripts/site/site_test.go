package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSite writes the site of this tree. It checks that no link is dead, and that the parts are there.
func TestSite(t *testing.T) {
	out := t.TempDir()
	if err := run("../..", out); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"index.html":                   `href="man/execsnoop.8.html"`,
		"man/biolatency.8.html":        `<h2 id="options">OPTIONS</h2>`,
		"man/corescope.1.html":         "<h1>corescope.1</h1>",
		"schema/opensnoop.html":        "<td><code>path</code></td>",
		"docs/symptoms/slow-disk.html": `<h1 id="slow-disk">Slow disk</h1>`,
		"docs/benchmarks.html":         "<table>",
		"docs/compatibility.html":      "<table>",
		"docs/gallery.html":            `src="../docs/gallery/biolatency.svg"`,
		"search-index.js":              `"t":"Slow disk"`,
	} {
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s does not contain %s: %v", name, want, err)
		}
	}
}

// TestCheck checks that dead links, dead anchors and external resources are found.
func TestCheck(t *testing.T) {
	out := t.TempDir()
	text := `<h1 id="here">x</h1><a href="#here">a</a><a href="https://example.com/">b</a><a href="#gone">c</a>
<a href="gone.html">d</a><img src="https://example.com/x.png"><link rel="stylesheet" href="http://example.com/x.css">`
	if err := os.WriteFile(filepath.Join(out, "index.html"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	errs := check(out)
	if len(errs) != 4 {
		t.Errorf("got %d errors, want 4: %v", len(errs), errs)
	}
}

// TestDeadLink checks that a link to a file that is not in the tree is an error.
func TestDeadLink(t *testing.T) {
	s := &site{tree: "../..", urls: map[string]string{"README.md": "index.html"}}
	if _, err := s.markdown("docs/x.md", []byte("[a](../README.md) [b](../main.go#L1)")); err == nil || !strings.Contains(err.Error(), "dead link ../main.go#L1") {
		t.Errorf("error is %v", err)
	}
	got, err := s.markdown("docs/x.md", []byte("[a](../README.md#tools) [b](../go.mod)"))
	if want := `<a href="../index.html#tools">a</a> <a href="` + repository + `go.mod">b</a>`; err != nil || !strings.Contains(got, want) {
		t.Errorf("got %s %v, want %s", got, err, want)
	}
}

func TestRoff(t *testing.T) {
	s := &site{urls: map[string]string{"man/man8/runqlat.8": "man/runqlat.8.html"}}
	p := &page{URL: "man/x.8.html", Root: "../"}
	got := s.roff(p, ".TH X 8\n.SH OPTIONS\n.TP\n\\fB\\-a\\fR \\fIN\\fR\nsee runqlat(8) & <b>\n.PP\n.in +4n\n.nf\nx \\-a\n\\&.dot\n.fi\n.in\n.IP \\(bu 2\npoint\n")
	for _, want := range []string{
		`<h2 id="options">OPTIONS</h2>`, "<dl><dt><b>-a</b> <i>N</i></dt><dd>", `<a href="../man/runqlat.8.html">runqlat(8)</a> &amp; &lt;b&gt;`,
		"<pre>x -a\n.dot\n</pre>", "<dd>point\n</dd>",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
}
