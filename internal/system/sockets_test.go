package system

import "testing"

func TestTCPSockets(t *testing.T) {
	const text = "sockets: used 294\nTCP: inuse 30 orphan 2 tw 11 alloc 4711 mem 5\nUDP: inuse 8 mem 3\n"
	for _, test := range []struct {
		name, text string
		want       int
		fails      bool
	}{
		{"complete", text, 4711, false},
		{"no TCP line", "sockets: used 294\n", 0, true},
		{"truncated", "TCP: inuse 30 orphan 2", 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := tree(t, map[string]string{"proc/net/sockstat": test.text})
			if got, err := TCPSockets(root); got != test.want || (err != nil) != test.fails {
				t.Errorf("TCPSockets = %d, %v; want %d, error %v", got, err, test.want, test.fails)
			}
		})
	}
}
