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
	for _, s := range []string{"0", "65", "", "SIGNONE", "-9"} {
		if n, err := ParseSignal(s); err == nil {
			t.Errorf("%q is %d, want an error", s, n)
		}
	}
}
