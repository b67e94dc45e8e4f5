package flags

import (
	"strings"
	"testing"
)

func TestZeroIsNone(t *testing.T) {
	type options struct {
		Every Duration `flag:"interval,i" pos:"interval" zero:"none"`
		Other Duration `flag:"other"`
	}
	for args, isValid := range map[string]bool{"-i 0": true, "0": true, "-i 0 -i 0": true, "-i 2 -i 0": false, "-i 0 -i 2": false, "-i 0s": false, "--other 0": false} {
		var o options
		s := New("tool")
		if err := s.Add(&o, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Parse(strings.Fields(args)); (err == nil) != isValid || isValid && o.Every != 0 {
			t.Errorf("%q: %v, %v", args, o.Every, err)
		}
	}
}

func TestBareFlags(t *testing.T) {
	type options struct {
		Unique  string `flag:"unique,u" bare:"pid"`
		Verbose bool   `flag:"verbose,v"`
		Word    string `pos:"word"`
	}
	for args, want := range map[string]options{
		"":                   {},
		"--unique":           {Unique: "pid"},
		"-u":                 {Unique: "pid"},
		"-u -v":              {Unique: "pid", Verbose: true},
		"-v --unique":        {Unique: "pid", Verbose: true},
		"--unique cgroup":    {Unique: "cgroup"},
		"-u cgroup word":     {Unique: "cgroup", Word: "word"},
		"--unique=cgroup -v": {Unique: "cgroup", Verbose: true},
		"--unique= word":     {Unique: "pid", Word: "word"},
		"-u -- word":         {Unique: "pid", Word: "word"},
	} {
		var o options
		s := New("tool")
		if err := s.Add(&o, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Parse(strings.Fields(args)); err != nil {
			t.Errorf("%q: %v", args, err)
		} else if o != want {
			t.Errorf("%q: %+v, want %+v", args, o, want)
		}
	}
}
