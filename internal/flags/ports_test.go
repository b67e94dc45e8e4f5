package flags

import (
	"testing"
)

func TestPorts(t *testing.T) {
	var o struct {
		Ports Ports `flag:"port,P" arg:"PORT" bpf:"targ_not_ports"`
	}
	s := New("x")
	if err := s.Add(&o, nil); err != nil {
		t.Fatal(err)
	}
	out := func() (out []int) {
		bits := s.Variables()["targ_not_ports"].([1024]uint64)
		for port := range 65536 {
			if bits[port/64]&(1<<(port%64)) == 0 {
				out = append(out, port)
			}
		}
		return out
	}
	if n := len(out()); n != 65536 {
		t.Errorf("%d ports are selected without the flag, want all", n)
	}
	if err := s.Parse([]string{"-P", "0, 80", "--port", "65535"}); err != nil {
		t.Fatal(err)
	}
	if got := out(); len(got) != 3 || got[0] != 0 || got[1] != 80 || got[2] != 65535 {
		t.Errorf("selected ports are %v", got)
	}
	if err := s.Parse([]string{"-P", "8000-8002"}); err != nil {
		t.Fatal(err)
	}
	if got := out(); len(got) != 6 || got[2] != 8000 || got[4] != 8002 {
		t.Errorf("selected ports are %v", got)
	}
	for _, bad := range []string{"65536", "http", "-1", "", "1,,2", "2-1", "1-", "1-2-3"} {
		if err := s.Parse([]string{"-P", bad}); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// A list that parses itself and a counting flag can be repeated.
func TestRepeated(t *testing.T) {
	type options struct {
		Ports   Ports `flag:"port"`
		Verbose Count `flag:"verbose,v"`
	}
	var o options
	s := New("tool")
	if err := s.Add(&o, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Parse([]string{"--port", "1", "-vv", "--port", "2-3", "--verbose"}); err != nil || len(o.Ports) != 3 || o.Verbose != 3 {
		t.Errorf("%+v, %v, want 3 ports and a count of 3", o, err)
	}
}
