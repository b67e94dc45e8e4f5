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
		"(skb->len > 128) (skb)":                 `show skb as ""; 1 conditions`,
		"(skb, skb->len > 128:d)":                `show skb as ""; show skb->len > 128 as "d"`,
		"(!arg1)":                                "1 conditions",
		`(!arg1) "%ld", arg1`:                    `show arg1 as ""; 1 conditions; format %ld`,
		`(arg1, 1) "%ld %d"`:                     `show arg1 as ""; show 1 as ""; format %ld %d`,
		`(arg1, 1) "%ld %d %d", arg1`:            `show arg1 as ""; show 1 as ""; show arg1 as ""; format %ld %d %d`,
		"(int n, int m)(n, m)":                   `n is int; m is int; show n as ""; show m as ""`,
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
	for _, text := range []string{"(", "(a", "(a b c)", `"x" y`, "if", "a", "(a:)", `"x",`, "(a,)",
		// No list filters: neither values before a format without verbs for them, nor a condition among values.
		`(arg1, 1) "%ld", arg1`, `(1, arg1) "%ld", arg1`, `(a, b) "x"`, `(int a, b) "%d", a`, `(a:x) "%d", a`,
		"(skb->len > 128, skb)", "(10/(int)arg1, arg2, !arg1)", "(a, b && c)", `(a, STRCMP("x", b))`, "(a > 1, b > 1)", "(int a, a > 1)",
	} {
		if c, err := ParseClauses(text); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s is parsed as %s, %v, want %v", text, describeClauses(c), err, ErrSyntax)
		}
	}
}

// TestRefusedLists expects that the message names what to write.
func TestRefusedLists(t *testing.T) {
	for text, want := range map[string]string{
		"(10/(int)arg1, arg2, !arg1)": "the condition !arg1 is in a list of values; write it after the list: if !arg1; or write !arg1:d to show its value",
		`(arg1, 1) "%ld", arg1`:       "the format has no verb for the value arg1 in parentheses",
	} {
		if _, err := ParseClauses(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
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
