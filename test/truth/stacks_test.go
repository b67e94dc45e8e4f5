package main

import (
	"debug/elf"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestPerfStacks parses output of perf script and checks the computed shares.
func TestPerfStacks(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := elf.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	text := fmt.Sprintf(`go
	          10bf80 (/usr/local/go/bin/go)

truth-ls
	           bb3e1 (%[1]s)
	          %[2]x (%[1]s)

truth-true
	           16f42 (%[1]s)
	ffffffffffffffff ([unknown])

truth-awk
	          %[3]x (%[1]s)

truth-sort

`, self, program.Entry+33, program.Entry+64)
	all, err := readPerfStacks(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := share(all, programEntries{}), (shares{4, 25, 25}); got != want {
		t.Errorf("shares are %v, want %v: %v", got, want, all)
	}
}
