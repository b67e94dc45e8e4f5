package main

import "testing"

func TestVersion(t *testing.T) {
	for _, tt := range []struct{ describe, semantic, deb, rpm, apk, arch string }{
		{"v1.2.3-0-gabc123", "1.2.3", "1.2.3", "1.2.3", "1.2.3", "1.2.3"},
		{"v1.3.0-rc1-0-gabc123", "1.3.0-rc1", "1.3.0~rc1", "1.3.0~rc1", "1.3.0_rc1", "1.3.0rc1"},
		{"v1.2.3-5-gabc123", "1.2.3+git5.abc123", "1.2.3+git5.abc123", "1.2.3^git5.abc123", "1.2.3_git5", "1.2.3.r5.gabc123"},
		{"v1.3.0-beta2-7-gabc123", "1.3.0-beta2+git7.abc123", "1.3.0~beta2+git7.abc123", "1.3.0~beta2^git7.abc123", "1.3.0_beta2_git7", "1.3.0beta2.r7.gabc123"},
	} {
		v, err := parseVersion(tt.describe)
		if err != nil {
			t.Errorf("%s: %v", tt.describe, err)
			continue
		}
		for _, c := range [][2]string{{v.String(), tt.semantic}, {v.deb(), tt.deb}, {v.rpm(), tt.rpm}, {v.apk(), tt.apk}, {v.arch(), tt.arch}} {
			if c[0] != c[1] {
				t.Errorf("%s: got %s, want %s", tt.describe, c[0], c[1])
			}
		}
	}
	for _, bad := range []string{"", "v1.2-0-gabc", "v1.2.3", "v1.2.3-x-0-gabc", "1.2.3-0-gabc"} {
		if v, err := parseVersion(bad); err == nil {
			t.Errorf("%q is accepted as %v", bad, v)
		}
	}
}
