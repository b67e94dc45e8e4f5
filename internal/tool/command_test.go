package tool

import (
	"slices"
	"testing"
)

// TestArgv checks that only commands without shell syntax are executed without a shell.
func TestArgv(t *testing.T) {
	for command, want := range map[string][]string{
		"ls":                     {"ls"},
		" ls\t-la  /etc/passwd ": {"ls", "-la", "/etc/passwd"},
		"ls --color=auto":        {"ls", "--color=auto"},
		"FOO=bar ls":             nil,
		"cd /":                   nil,
		"exit 7":                 nil,
		"exec ls":                nil,
		"ls | cat":               nil,
		"ls && ls":               nil,
		"ls; ls":                 nil,
		"ls\nls":                 nil,
		"ls &":                   nil,
		"ls >file":               nil,
		"ls *.c":                 nil,
		"ls ~":                   nil,
		"ls 'a b'":               nil,
		"ls $HOME":               nil,
		"ls `pwd`":               nil,
		"ls # all":               nil,
		"! ls":                   nil,
		"no-such-program":        nil,
		"":                       nil,
	} {
		if want == nil {
			want = []string{"/bin/sh", "-c", command}
		}
		if got := argv(command); !slices.Equal(got, want) {
			t.Errorf("%q is executed as %q, want %q", command, got, want)
		}
	}
}
