package value

import "testing"

func TestSignal(t *testing.T) {
	for n, name := range map[Signal]string{
		1: "SIGHUP", 9: "SIGKILL", 29: "SIGIO", 31: "SIGSYS", 32: "SIG32", 34: "SIGRTMIN", 37: "SIGRTMIN+3", 64: "SIGRTMIN+30",
	} {
		if got := n.String(); got != name {
			t.Errorf("signal %d is %s, want %s", n, got, name)
		}
		for _, s := range []string{name, name[3:]} {
			if n == 32 && s == "32" {
				continue
			}
			if got, err := ParseSignal(s); got != n || err != nil {
				t.Errorf("%s is %d, %v, want %d", s, got, err, n)
			}
		}
	}
	for s, want := range map[string]Signal{
		"sigterm": 15, "term": 15, "sigrtmax": 64, "SIGRTMAX-1": 63, "rtmax-30": 34, "sigrtmin+0": 34, "RTMIN+1": 35, "0": 0, "sigiot": 6, "POLL": 29,
	} {
		if n, err := ParseSignal(s); n != want || err != nil {
			t.Errorf("%q is %d, %v, want %d", s, n, err, want)
		}
	}
	for n, want := range map[Signal]string{65: "65", 100: "100", 0xffffffff: "-1"} {
		if got := n.String(); got != want {
			t.Errorf("signal %d is %s, want %s", n, got, want)
		}
	}
	for _, s := range []string{"65", "", "SIGNONE", "-9", "RTMIN+31", "RTMIN-1", "RTMAX+1", "RTMAX-31", "RTMIN+", "RTMAX1"} {
		if n, err := ParseSignal(s); err == nil {
			t.Errorf("%q is %d, want an error", s, n)
		}
	}
}
