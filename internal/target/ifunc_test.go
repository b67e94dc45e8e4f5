package target

import (
	"testing"

	"github.com/corescope/corescope/internal/binary"
)

func TestReportOfImplementations(t *testing.T) {
	for selected, want := range map[int]string{
		0: "",
		1: "1 function of /lib/x has several implementations: the ones that processes have selected are traced",
		2: "2 functions of /lib/x have several implementations: the ones that processes have selected are traced",
	} {
		got := ""
		n := notes{Finder: &Finder{Note: func(text string) { got += text }}, file: &binary.File{Path: "/lib/x"}, isPattern: true, selected: selected}
		if n.report(); got != want {
			t.Errorf("%d functions: %q, want %q", selected, got, want)
		}
	}
}
