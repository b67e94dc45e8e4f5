package stack

import (
	"strings"
	"testing"
)

func TestDemangle(t *testing.T) {
	deep := "_Z1f" + strings.Repeat("P", 5000) + "i"
	wide := "_Z1f1000" + strings.Repeat("x", 1000) + strings.Repeat("S_", 1500)
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
		{"_Z1fPPi", "f(int**)"},
		{deep, deep},
		{wide, wide},
	}
	for _, test := range tests {
		if got := demangle(test.in); got != test.want {
			t.Errorf("demangle(%.60q) = %.60q, want %.60q", test.in, got, test.want)
		}
	}
}

func TestUnversioned(t *testing.T) {
	for in, want := range map[string]string{"memcpy@@GLIBC_2.14": "memcpy", "a@V1": "a", "@a": "@a", "a": "a", "": ""} {
		if got := unversioned(in); got != want {
			t.Errorf("unversioned(%q) = %q, want %q", in, got, want)
		}
	}
}
