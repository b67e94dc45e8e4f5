package value

import (
	"net/netip"
	"testing"
)

func TestAddr(t *testing.T) {
	for _, c := range []struct {
		in, want string
		family   uint8
	}{
		{"::ffff:127.0.0.1", "127.0.0.1", 4},
		{"::ffff:0.0.0.0", "0.0.0.0", 4},
		{"::1", "::1", 6},
		{"::", "::", 6},
		{"2001:db8::7f00:1", "2001:db8::7f00:1", 6},
	} {
		a := Addr(netip.MustParseAddr(c.in).As16())
		if got := string(a.AppendText(nil)); got != c.want || a.Any() != c.want || a.Family() != c.family {
			t.Errorf("text of %s: %s, IPv%d, want %s, IPv%d", c.in, got, a.Family(), c.want, c.family)
		}
		if got := string(a.AppendJSON([]byte("x"))); got != `x"`+c.want+`"` {
			t.Errorf(`JSON of %s after x: %s, want x"%s"`, c.in, got, c.want)
		}
	}
}

func TestTCPState(t *testing.T) {
	for state, want := range map[TCPState]string{0: "0", 1: "ESTABLISHED", 7: "CLOSE", 11: "CLOSING", 13: "BOUND_INACTIVE", 14: "14"} {
		if got := string(state.AppendText(nil)); got != want {
			t.Errorf("text of state %d: %s, want %s", state, got, want)
		}
	}
}
