package main

import (
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	const events = `{"Action":"run","Package":"m/corescope/corescope/a","Test":"TestX"}
{"Action":"output","Package":"m/corescope/corescope/a","Test":"TestX","Output":"    x_test.go:1: wrong\n"}
{"Action":"output","Package":"m/corescope/corescope/a","Test":"TestX","Output":"--- FAIL: TestX (2.50s)\n"}
{"Action":"fail","Package":"m/corescope/corescope/a","Test":"TestX","Elapsed":2.5}
{"Action":"output","Package":"m/corescope/corescope/a","Output":"FAIL\tm/corescope/corescope/a\t3.0s\n"}
{"Action":"fail","Package":"m/corescope/corescope/a","Elapsed":3}
{"Action":"output","Package":"m/b","Test":"TestY","Output":"    quiet\n"}
{"Action":"pass","Package":"m/b","Test":"TestY","Elapsed":9}
{"Action":"output","Package":"m/b","Output":"ok  \tm/b\t9.0s\n"}
{"Action":"pass","Package":"m/b","Elapsed":9}
{"Action":"build-fail","ImportPath":"m/c"}
{"Action":"output","Package":"m/c","Output":"FAIL\tm/c [build failed]\n"}
{"Action":"fail","Package":"m/c","Elapsed":0}
`
	s := newSummary()
	var out strings.Builder
	if err := s.read(strings.NewReader(events), &out); err != nil {
		t.Fatal(err)
	}
	s.print(&out, 1)
	const want = `    x_test.go:1: wrong
--- FAIL: TestX (2.50s)
slowest tests:
     9.0 s   TestY
ok  	m/b	9.0s
--- FAIL: TestX (2.50s)
FAIL	m/corescope/corescope/a	3.0s
FAIL	m/c [build failed]
FAIL
`
	if out.String() != want || !s.hasFailed {
		t.Errorf("printed %q, want %q", &out, want)
	}
	if got, want := s.failures(), "m/corescope/corescope/a TestX\nm/c\n"; got != want {
		t.Errorf("failures are %q, want %q", got, want)
	}
}
