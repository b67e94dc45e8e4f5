package faults

import (
	"path/filepath"
	"testing"

	"github.com/corescope/corescope/internal/tooltest/native"
)

// library returns a function that creates a shared library with one function and returns its path.
func library(name, function string) func(testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		return native.Write(t, filepath.Join(t.TempDir(), name), []string{function}).Path
	}
}

// libraries are the libraries that this process has loaded, by path.
var libraries = map[string]*native.Library{}

// calls calls the function of a library n times. The function behaves as c says.
func calls(n int, path, function string, c native.Call) (int, error) {
	lib := libraries[path]
	if lib == nil {
		lib = &native.Library{Path: path}
		if err := lib.Load(function); err != nil {
			return 0, err
		}
		libraries[path] = lib
	}
	for range n {
		lib.Call(function, c)
	}
	return n, nil
}

// text is the string that pointer arguments point to.
var text = native.Text("text")

// noName is a lookup that finds no address.
func noName() native.Call {
	const eaiNoName = 1<<32 - 2
	return native.Call{Args: [7]uint64{native.Pointer(text)}, Ret: eaiNoName}
}

// line is a line that readline returns.
func line() native.Call { return native.Call{Ret: native.Pointer(text)} }

// data is a call that writes four bytes.
func data() native.Call {
	return native.Call{Args: [7]uint64{0xabc000, native.Pointer(text), 4}, Ret: 4}
}
