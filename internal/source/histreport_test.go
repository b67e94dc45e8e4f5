package source

import (
	"testing"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/value"
)

// TestTitle checks that titles name values that are absent, in text and in heat maps.
func TestTitle(t *testing.T) {
	holder, known, tid := value.Name(""), value.Name("worker"), value.Nonzero(0)
	key := []column.Column{{Key: "holder", Value: &holder}, {Key: "holder_tid", Value: &tid}, {Key: "comm", Value: &known}}
	if got, want := string(appendTitled(nil, key)), "\nholder = n/a\tholder_tid = n/a\tcomm = worker\n"; got != want {
		t.Errorf("title is %q, want %q", got, want)
	}
	if got, want := heading(key), "holder = n/a, holder_tid = n/a, comm = worker"; got != want {
		t.Errorf("heading is %q, want %q", got, want)
	}
}
