package stack

import (
	"strings"
	"testing"
)

func TestDemangle(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"main", "main"},
		{"main.(*T).run", "main.(*T).run"},
		{"_ZN2ns1TIiE3addEi", "ns::T<int>::add(int)"},
		{"_ZN2ns1T3addEi.cold", "ns::T::add(int) [clone .cold]"},
		{"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"},
		{"_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function"},
		{"_rt0_amd64_linux", "_rt0_amd64_linux"},
		{"_Zbroken", "_Zbroken"},
		{"_start", "_start"},
		{"__libc_start_main", "__libc_start_main"},
		{"_Z" + strings.Repeat("P", 1<<20), "_Z" + strings.Repeat("P", 1<<20)},
	}
	for _, test := range tests {
		if got := demangle(test.in); got != test.want {
			t.Errorf("demangle(%.60q) = %.60q, want %.60q", test.in, got, test.want)
		}
	}
}

// TestDemangleGrowth has a name that refers to itself again and again, so that
// each character doubles the length.
func TestDemangleGrowth(t *testing.T) {
	name := "_Z1fI1A" + strings.Repeat("S_S_", 2) + "EvT_"
	for i := range 20 {
		name = strings.Replace(name, "EvT_", "1B"+strings.Repeat("IS_S_E", i)+"EvT_", 1)
	}
	if got := demangle(name); len(got) > len(name) && len(got) >= 1<<14 {
		t.Errorf("%d bytes became %d", len(name), len(got))
	}
}

func TestUnversioned(t *testing.T) {
	for in, want := range map[string]string{"memcpy@@GLIBC_2.14": "memcpy", "a@V1": "a", "@a": "@a", "a": "a", "": ""} {
		if got := unversioned(in); got != want {
			t.Errorf("unversioned(%q) = %q, want %q", in, got, want)
		}
	}
}
