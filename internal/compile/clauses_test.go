package compile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func describeClauses(c *Clauses) string {
	var out []string
	for _, p := range c.Params {
		out = append(out, fmt.Sprintf("%s is %s%s", p.Name, strings.Join(p.Type.words, " "), strings.Repeat("*", p.Type.pointers)))
	}
	for _, i := range c.Items {
		out = append(out, fmt.Sprintf("show %s as %q", i.Source, i.As))
	}
	if len(c.Where) > 0 {
		out = append(out, fmt.Sprintf("%d conditions", len(c.Where)))
	}
	if c.Format != "" {
		out = append(out, fmt.Sprintf("format %s", c.Format))
	}
	return strings.Join(out, "; ")
}

func TestParseClauses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "",
		"()":                                     "",
		"(dfd, filename:str) if dfd == -100":     `show dfd as ""; show filename as "str"; 1 conditions`,
		"(skb->len > 128, skb)":                  `show skb as ""; 1 conditions`,
		`(arg2 == 42) "%s %d", arg1, arg2`:       `show arg1 as ""; show arg2 as ""; 1 conditions; format %s %d`,
		`(int dfd, const char *name) "%s", name`: `dfd is int; name is char*; show name as ""; format %s`,
		`(struct file *f, size_t n) (n > 10) "%d", n`: `f is struct file*; n is size_t; show n as ""; 1 conditions; format %d`,
		`if !STRCMP("x", arg1)`:                       "1 conditions",
		"((int)arg1, a + b:x)":                        `show (int)arg1 as ""; show a + b as "x"`,
		"(return)":                                    `show return as ""`,
		`(retval) "%x", retval`:                       `show retval as ""; 1 conditions; format %x`,
		`(retval) "failed"`:                           `1 conditions; format failed`,
		`(retval) "%d"`:                               `show retval as ""; format %d`,
		"(struct file *f, int n)(n)":                  "f is struct file*; n is int; 1 conditions",
		"(size_t size, gfp_t flags)":                  "size is size_t; flags is gfp_t",
		"(const u_int_t *n, a * b)":                   `n is u_int_t*; show a * b as ""`,
		`"%s", arg2@user`:                             `show arg2@user as ""; format %s`,
	} {
		c, err := ParseClauses(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := describeClauses(c); got != want {
			t.Errorf("%s is parsed as %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"(", "(a", "(a b c)", `"x" y`, "if", "a", "(a:)", `"x",`, "(a,)"} {
		if c, err := ParseClauses(text); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s is parsed as %s, %v, want %v", text, describeClauses(c), err, ErrSyntax)
		}
	}
}

func FuzzParseClauses(f *testing.F) {
	f.Add(`(int a, b:str, c > 1) (x == 2) "%s", y if z`)
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := ParseClauses(text); err != nil && !errors.Is(err, ErrSyntax) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
