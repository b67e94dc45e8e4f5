package tool

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

type aliasOptions struct {
	Type []string `flag:"type,t" help:"which"`
	Deep bool     `flag:"deep" help:"how"`
	What string   `pos:"what" help:"the first argument"`
	Last uint32   `pos:"last" help:"the second argument"`
}

func aliased() (*Tool, *aliasOptions) {
	f, o := newFake(), &aliasOptions{}
	f.spec.Also = []Alias{{"bogus", []string{"--type", "a,b", "--deep"}}}
	f.options, f.variables = o, nil
	return f.tool(), o
}

// TestAlias checks that an alias sets defaults, which arguments of the user override.
func TestAlias(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want []string
		deep bool
	}{
		{"fake", nil, nil, false},
		{"bogus", nil, []string{"a", "b"}, true},
		{"bogus", []string{"-t", "c"}, []string{"c"}, true},
		{"bogus", []string{"-t", "c", "-t", "d", "--deep=false"}, []string{"c", "d"}, false},
	} {
		tl, o := aliased()
		if _, err := tl.As(tc.name).parse(tc.args); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(o.Type, tc.want) || o.Deep != tc.deep {
			t.Errorf("%s %q: %+v", tc.name, tc.args, *o)
		}
	}
}

// TestAliasPosition checks that an argument of the user follows those of an alias.
func TestAliasPosition(t *testing.T) {
	tl, o := aliased()
	tl.Also = []Alias{{"bogus", []string{"this", "--deep"}}}
	if _, err := tl.As("bogus").parse([]string{"7"}); err != nil || o.What != "this" || o.Last != 7 || !o.Deep {
		t.Errorf("%+v: %v", *o, err)
	}
	if _, err := tl.As("bogus").parse([]string{"7", "8"}); err == nil {
		t.Error("a third argument is accepted")
	}
	var out bytes.Buffer
	Run(t.Context(), tl.As("bogus"), []string{"--help"}, &out, &out)
	if !strings.Contains(out.String(), "Usage: bogus [flags] [last]\n") {
		t.Errorf("help: %s", &out)
	}
}

func TestAliasNames(t *testing.T) {
	tl, _ := aliased()
	if tl.As("other") != nil || tl.As("fake") != tl || tl.As("bogus").Self() != tl {
		t.Error("As does not find a tool by its names")
	}
	var out bytes.Buffer
	Run(t.Context(), tl.As("bogus"), []string{"--help"}, &out, &out)
	for _, want := range []string{"bogus: Show", "Usage: bogus [flags] [what [last]]\nThe same as fake --type a,b --deep\n", "which (default: a,b)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the help: %s", want, &out)
		}
	}
}
