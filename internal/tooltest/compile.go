package tooltest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// CompileC compiles a C program with the flags and returns its path. It skips the test if no
// compiler is installed.
func CompileC(t testing.TB, source string, flags ...string) string {
	t.Helper()
	return compile(t, "cc", "source.c", source, flags)
}

// CompileCXX is CompileC for C++.
func CompileCXX(t testing.TB, source string, flags ...string) string {
	t.Helper()
	return compile(t, "c++", "source.cc", source, flags)
}

func compile(t testing.TB, compiler, name, source string, flags []string) string {
	t.Helper()
	path, err := exec.LookPath(compiler)
	if err != nil {
		t.Skipf("needs a compiler for the test program: %v", err)
	}
	dir := t.TempDir()
	file, out := filepath.Join(dir, name), filepath.Join(dir, "program")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"-o", out, file}, flags...)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile: %v: %s", err, text)
	}
	return out
}
