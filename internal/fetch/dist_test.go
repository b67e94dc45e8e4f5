package fetch

import (
	"errors"
	"testing"

	"github.com/corescope/corescope/internal/compile"
	"github.com/corescope/corescope/internal/target"
)

func TestParseDist(t *testing.T) {
	for text, want := range map[string]string{
		"p::f(u64 size):u64:size:size > 16#sizes":         "f: size; 1 conditions; 1 params; sizes",
		"t:block:block_rq_complete():u32:args->nr_sector": "block:block_rq_complete: args->nr_sector; 0 conditions; 0 params; ",
		"r:c:gets():char*:$retval:$retval != 0":           "gets: $retval as str; 1 conditions; 0 params; ",
		"p::f(int a, char *b):int,char *:a,b":             "f: a, b as str; 0 conditions; 2 params; ",
		"p::f()":                                          "f: ; 0 conditions; 0 params; ",
		`f(a, b:x) if c == "#"#label # 2`:                 "f: a, b as x; 1 conditions; 0 params; label # 2",
		"f":                                               "f: ; 0 conditions; 0 params; ",
	} {
		p, err := ParseDist(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := describe(p); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"f():a:b:c:d", "f(:a:b", "f():u64:a b"} {
		if p, err := ParseDist(text); !errors.Is(err, compile.ErrSyntax) {
			t.Errorf("%s is parsed as %v, %v, want ErrSyntax", text, p, err)
		}
	}
}

func describe(p *Probe) string {
	items := ""
	for i, item := range p.Items {
		if i > 0 {
			items += ", "
		}
		if items += item.Source; item.As != "" {
			items += " as " + item.As
		}
	}
	digit := func(n int) string { return string(rune('0' + n)) }
	return p.Spec.Name + ": " + items + "; " + digit(len(p.Where)) + " conditions; " + digit(len(p.Params)) + " params; " + p.Label
}

func FuzzParseDist(f *testing.F) {
	f.Add("p::f(int a, char *b):int,char *:a,b:a > 1#x")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := ParseDist(text); err != nil && !errors.Is(err, compile.ErrSyntax) && !errors.Is(err, target.ErrSpec) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
