package value

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAppendEscaped(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"plain", "/usr/bin/x y", "/usr/bin/x y"},
		{"quotes", `'"`, `'"`},
		{"backslash", `a\nb`, `a\\nb`},
		{"newline and tab", "a\nb\tc\r", `a\nb\tc\r`},
		{"NUL", "a\x00b", `a\x00b`},
		{"delete", "\x7f", `\x7f`},
		{"colour", "\x1b[31mred", `\x1b[31mred`},
		{"title", "\x1b]0;x\x07", `\x1b]0;x\a`},
		{"C1 alone", "\x9b31m", `\x9b31m`},
		{"C1 in UTF-8", "\u009b31m", `\u009b31m`},
		{"next line", "\u0085", `\u0085`},
		{"bidi override", "\u202egpj.exe", `\u202egpj.exe`},
		{"bidi isolate", "\u2066x\u2069", `\u2066x\u2069`},
		{"no width", "a\u200bb\ufeff", `a\u200bb\ufeff`},
		{"line separators", "\u2028\u2029", `\u2028\u2029`},
		{"no-break space", "\u00a0", `\u00a0`},
		{"tags", "\U000e0041", `\U000e0041`},
		{"latin", "é", "é"},
		{"wide", "日本", "日本"},
		{"emoji", "🙂", "🙂"},
		{"replacement character itself", "\ufffd", "\ufffd"},
		{"truncated sequence", "\xe6\x97", `\xe6\x97`},
		{"overlong", "\xc0\xaf", `\xc0\xaf`},
		{"surrogate", "\xed\xa0\x80", `\xed\xa0\x80`},
		{"above Unicode", "\xf4\x90\x80\x80", `\xf4\x90\x80\x80`},
		{"invalid between valid", "é\xffé", `é\xffé`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendEscaped([]byte("<"), tt.in)); got != "<"+tt.want {
				t.Errorf("AppendEscaped(%q) = %q, want %q", tt.in, got, "<"+tt.want)
			}
			if got := string(AppendEscaped(nil, []byte(tt.in))); got != tt.want {
				t.Errorf("AppendEscaped of the same bytes = %q, want %q", got, tt.want)
			}
		})
	}
}

// checkTerminal fails if out contains terminal control sequences or invisible characters.
func checkTerminal(t *testing.T, out []byte) {
	t.Helper()
	for _, c := range out {
		if c < ' ' || c == 0x7f {
			t.Fatalf("control byte %#x in %q", c, out)
		}
	}
	if !utf8.Valid(out) {
		t.Fatalf("not UTF-8: %q", out)
	}
	if strings.ContainsFunc(string(out), func(r rune) bool { return !strconv.IsPrint(r) }) {
		t.Fatalf("unprintable character in %q", out)
	}
}

func FuzzAppendEscaped(f *testing.F) {
	for _, s := range []string{"", "a", "\\", "\\x1b", "\x1b", "\x9b", "\u009b", "\u202e", "日本", "\xff", "\xe6\x97", "\"`"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := AppendEscaped(nil, s)
		checkTerminal(t, out)
		// The escapes are Go's, so unquoting must yield the input: the output is lossless.
		quoted := `"` + strings.ReplaceAll(string(out), `"`, `\"`) + `"`
		if back, err := strconv.Unquote(quoted); err != nil || back != s {
			t.Fatalf("escape of %q: %q, which unquotes to %q, %v", s, out, back, err)
		}
	})
}

func TestAppendString(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"empty", "", `""`},
		{"plain", "a b", `"a b"`},
		{"quote and backslash", `a"\`, `"a\"\\"`},
		{"newline and tab", "\n\t", `"\n\t"`},
		{"control", "\x00\x1b\x7f", `"\u0000\u001b\u007f"`},
		{"C1", "\u009b", `"\u009b"`},
		{"bidi override", "\u202e", `"\u202e"`},
		{"tags", "\U000e0041", `"\udb40\udc41"`},
		{"not HTML", "<&>", `"<&>"`},
		{"wide", "日本🙂", `"日本🙂"`},
		{"invalid bytes", "a\xff\xe6\x97b", `"a\ufffd\ufffd\ufffdb"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendString(nil, tt.in)); got != tt.want {
				t.Errorf("AppendString(%q) = %s, want %s", tt.in, got, tt.want)
			}
			if got := string(AppendString([]byte("x"), []byte(tt.in))); got != "x"+tt.want {
				t.Errorf("AppendString of the same bytes = %s, want x%s", got, tt.want)
			}
		})
	}
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "a", "\"", "\\", "\x1b", "\u2028", "\u202e", "\U000e0041", "\U0010ffff", "日本", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := AppendString(nil, s)
		checkTerminal(t, out)
		var back string
		if err := json.Unmarshal(out, &back); err != nil {
			t.Fatalf("JSON of %q: %s: %v", s, out, err)
		}
		if utf8.ValidString(s) && back != s {
			t.Fatalf("JSON of %q decodes to %q", s, back)
		}
		if want := strings.ToValidUTF8(s, ""); len(back) < len(want) {
			t.Fatalf("JSON of %q decodes to %q: characters are missing", s, back)
		}
	})
}

func TestAppendVisible(t *testing.T) {
	const in, want = "a\tb\\x\x1b[2J\u202e\xff ü\n", "a\tb\\x\\x1b[2J\\u202e\\xff ü\n"
	if got := string(AppendVisible(nil, in)); got != want {
		t.Errorf("AppendVisible(%q) = %q, want %q", in, got, want)
	}
}
