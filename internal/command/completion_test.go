package command_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestComplete(t *testing.T) {
	for _, tc := range []struct {
		words []string
		want  []string
	}{
		{[]string{"corescope", "opens"}, []string{"opensnoop"}},
		{[]string{"corescope", "vers"}, []string{"version"}},
		{[]string{"corescope", "ext4"}, []string{"ext4dist", "ext4slower"}},
		{[]string{"ext4slower", "--full"}, []string{"--full-path"}},
		{[]string{"corescope", "man", "opens"}, []string{"opensnoop"}},
		{[]string{"corescope", "help", "opens"}, []string{"opensnoop"}},
		{[]string{"corescope", "doctor", "opensnoop", "runqla"}, []string{"runqlat"}},
		{[]string{"corescope", "list", "--n"}, []string{"--names"}},
		{[]string{"corescope", "completion", ""}, []string{"bash", "zsh", "fish"}},
		{[]string{"corescope", "version", ""}, []string{"--json"}},
		{[]string{"corescope", "schema", "opensnoop", "--full"}, []string{"--full-path"}},
		{[]string{"corescope", "opensnoop", "--full"}, []string{"--full-path"}},
		{[]string{"corescope", "opensnoop", "--output", "j"}, []string{"json"}},
		{[]string{"/bin/opensnoop", "--hook", "open=b"}, []string{"open=btf"}},
		{[]string{"bpf-opensnoop", "--columns", "pid,+un"}, []string{"pid,+unit"}},
		{[]string{"corescope", "nosuch", ""}, nil},
		{[]string{"corescope"}, nil},
		{nil, nil},
	} {
		_, out, _ := run(t, append([]string{"corescope", "complete", "--"}, tc.words...)...)
		if got := firstFields(out); !slices.Equal(got, tc.want) {
			t.Errorf("%q: got %q, want %q", tc.words, got, tc.want)
		}
	}
}

func firstFields(lines string) []string {
	var words []string
	for line := range strings.Lines(lines) {
		word, _, _ := strings.Cut(line, "\t")
		words = append(words, word)
	}
	return words
}

// TestBash runs the completion function of bash. bash expects candidates without the part of the
// word up to the last word break character.
func TestBash(t *testing.T) {
	bash := shell(t, "bash")
	for _, tc := range []struct{ line, want string }{
		{"corescope opens", "opensnoop"},
		{"corescope completion ", "bash zsh fish"},
		{"opensnoop --full", "--full-path"},
		{"opensnoop --output=c", "csv"},
		{"bpf-opensnoop --hook open=r", "raw"},
		{"opensnoop --columns pid,+un", "pid,+unit"},
		{"opensnoop --btf /et", ""},
	} {
		script := `source <(corescope completion bash --prefix bpf-) && complete -p corescope bpf-opensnoop >/dev/null &&
			COMP_LINE=$1 COMP_POINT=${#1} && { _corescope 2>/dev/null; echo "${COMPREPLY[*]}"; }`
		if got := bash("-c", script, "bash", tc.line); got != tc.want+"\n" {
			t.Errorf("%q: got %q, want %q", tc.line, got, tc.want)
		}
	}
}

func TestZsh(t *testing.T) {
	zsh := shell(t, "zsh")
	script := `compdef() { print -r registered $* }
		_describe() { print -rl -- $found }
		_files() { print files }
		source <(corescope completion zsh); words=(opensnoop --hook open=r) CURRENT=3; _corescope
		words=(opensnoop --btf /et) CURRENT=3; _corescope`
	want := "open=raw:raw_tp/sys_exit\nfiles\n"
	if got := zsh("-f", "-c", script); !strings.HasPrefix(got, "registered _corescope corescope ") || !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want ... %q", got, want)
	}
}

func TestFish(t *testing.T) {
	fish := shell(t, "fish")
	script := `corescope completion fish | source; complete -C "opensnoop --hook=open=r"`
	if got := fish("--no-config", "-c", script); got != "--hook=open=raw\traw_tp/sys_exit\n" {
		t.Errorf("got %q, want %q", got, "--hook=open=raw\traw_tp/sys_exit\n")
	}
}

// shell returns a function that runs the shell, with corescope in its PATH.
func shell(t *testing.T, name string) func(args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(name + " is not installed")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "corescope")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func(args ...string) string {
		t.Helper()
		out, err := exec.Command(path, args...).Output()
		if err != nil {
			t.Errorf("%s %q: %v", name, args, err)
		}
		return string(out)
	}
}
