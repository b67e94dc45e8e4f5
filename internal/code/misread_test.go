package code

import "testing"

func TestIsMisread(t *testing.T) {
	for _, tt := range []struct {
		name string
		text []byte
		want bool
	}{
		{"vpbroadcastb %esi,%ymm17", []byte{0x62, 0xe2, 0x7d, 0x28, 0x7a, 0xce}, true},
		{"vpor %xmm0,%xmm1,%xmm1", []byte{0xc5, 0xf1, 0xeb, 0xc8}, true},
		{"vpor %ymm8,%ymm9,%ymm9", []byte{0xc4, 0x41, 0x35, 0xeb, 0xc8}, true},
		{"vcmpps $0,%xmm0,%xmm1,%xmm1", []byte{0xc5, 0xf0, 0xc2, 0xc8, 0}, true},
		{"vpxorq %xmm16,%xmm16,%xmm16", []byte{0x62, 0xa1, 0xfd, 0, 0xef, 0xc0}, false},
		{"vxorps %xmm0,%xmm0,%xmm0", []byte{0xc5, 0xf8, 0x57, 0xc0}, false},
		{"vmovd %esi,%xmm0", []byte{0xc5, 0xf9, 0x6e, 0xc6}, false},
		{"jp", []byte{0x7a, 0x10}, false},
		{"endbr64", []byte{0xf3, 0x0f, 0x1e, 0xfa}, false},
		{"truncated", []byte{0x62, 0xe2}, false},
	} {
		if got := IsMisread(tt.text); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

// TestDoubt checks that instructions which the kernel refuses for the same reason are equal, and usual
// ones empty.
func TestDoubt(t *testing.T) {
	for _, tt := range []struct {
		name string
		text []byte
		want string
	}{
		{"lock decl (%rdi)", []byte{0xf0, 0xff, 0x0f, 0x75, 0x0b}, "f0"},
		{"vmovd %esi,%xmm0", []byte{0xc5, 0xf9, 0x6e, 0xc6, 0}, "VEX 6e"},
		{"vmovd %r8d,%xmm0", []byte{0xc4, 0xc1, 0x79, 0x6e, 0xc0}, "VEX 6e"},
		{"vpbroadcastb %esi,%ymm17", []byte{0x62, 0xe2, 0x7d, 0x28, 0x7a, 0xce}, "EVEX 7a"},
		{"endbr64", []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55}, ""},
		{"push %rbp", []byte{0x55, 0x48, 0x89, 0xe5, 0}, ""},
		{"truncated", []byte{0x62, 0xe2}, ""},
	} {
		if got := Doubt(tt.text); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
