package tool

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/flags"
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
		"":                       nil,
	} {
		if want == nil {
			want = []string{"/bin/sh", "-c", command}
		}
		if got, err := argv(command); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is executed as %q, want %q: %v", command, got, want, err)
		}
	}
	for _, command := range []string{"no-such-program", "/no/such/program -x"} {
		if got, err := argv(command); !errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), command) {
			t.Errorf("%q is executed as %q: %v", command, got, err)
		}
	}
}
