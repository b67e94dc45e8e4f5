package javagc

import (
	"strconv"

	"github.com/corescope/corescope/internal/value"
)

// what is enum what.
type what uint8

func (w *what) name() string {
	switch *w {
	case 0:
		return "collection"
	case 1:
		return "pool"
	}
	return strconv.Itoa(int(*w))
}

func (w *what) AppendText(b []byte) []byte { return append(b, w.name()...) }
func (w *what) AppendJSON(b []byte) []byte { return value.AppendString(b, w.name()) }
func (w *what) Any() any                   { return w.name() }
func (w *what) Schema() value.Schema       { return value.Schema{Type: "string"} }
