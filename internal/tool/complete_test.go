package tool

import (
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/document"
)

func TestComplete(t *testing.T) {
	facts, err := newFake().tool().Facts()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ args, want string }{
		{"--fa", "--failed"},
		{"-x --fi", "--filter"},
		{"--he", "--help"},
		{"--output ", "text json csv"},
		{"--output j", "json"},
		{"--output=c", "--output=csv"},
		{"--columns co", "comm"},
		{"--columns +no", "+note"},
		{"--columns comm,t", "comm,time comm,took_ns"},
		{"--columns=time,+no", "--columns=time,+note"},
		{"--columns al", "all"},
		{"--hook ", "open=btf open=raw"},
		{"--hook=open=r", "--hook=open=raw"},
		{"--output json -", strings.Join(wordsOf(facts.Complete([]string{"-"})), " ")},
		{"--limit ", ""},
		{"-x ", ""},
		{"1 ", ""},
		{"", ""},
	} {
		got := wordsOf(facts.Complete(strings.Split(tc.args, " ")))
		if !slices.Equal(got, strings.Fields(tc.want)) {
			t.Errorf("%q: got %q, want %q", tc.args, got, tc.want)
		}
	}
}

func wordsOf(all []document.Candidate) []string {
	var words []string
	for _, c := range all {
		words = append(words, c.Word)
	}
	return words
}

func TestSplitWords(t *testing.T) {
	for _, tc := range []struct {
		line string
		want []string
	}{
		{`a  -x  b`, []string{"a", "-x", "b"}},
		{`a 'b  c' "d'e"`, []string{"a", "b  c", "d'e"}},
		{`a --filter='x == "y"'`, []string{"a", `--filter=x == "y"`}},
		{`a 'b|c' | head > d`, []string{"a", "b|c"}},
		{`a >b`, []string{"a"}},
	} {
		if got := splitWords(tc.line); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.line, got, tc.want)
		}
	}
}
