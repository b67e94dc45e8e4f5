package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// host is a machine that ssh can log in to.
type host struct {
	name string
	ssh  []string // command
	// warn receives what ssh and the remote program write to standard error.
	warn io.Writer
}

// sshCommand returns the command of ssh: CORESCOPE_SSH with its options, such as "ssh -F FILE".
func sshCommand() []string {
	return append(strings.Fields(cmp.Or(os.Getenv("CORESCOPE_SSH"), "ssh")), "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
}

// command returns a command that runs a script with sh on the host.
func (h *host) command(ctx context.Context, script string) *exec.Cmd {
	args := append(append([]string{}, h.ssh[1:]...), "--", h.name, script)
	cmd := exec.CommandContext(ctx, h.ssh[0], args...)
	cmd.Stderr = h.warn
	// Ctrl-C must not end ssh: the tool on the host has yet to write its summary.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// program is the running executable.
type program struct {
	path, sum string
	version   string
}

func self(version string) (*program, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the own program: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the own program: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, fmt.Errorf("read the own program: %w", err)
	}
	return &program{path, hex.EncodeToString(sum.Sum(nil)), version}, nil
}

// cached is the path of the copied program on a host, for sh.
func (p *program) cached() string {
	return `"$HOME/.cache/corescope/corescope-` + p.sum[:32] + `"`
}

// machines maps values of GOARCH to those of uname -m.
func machines() map[string]string { return map[string]string{"amd64": "x86_64", "arm64": "aarch64"} }

// prepare returns the path of the program on the host, for sh. It copies the program if the host does not
// have it.
func (h *host) prepare(ctx context.Context, p *program) (string, error) {
	var out bytes.Buffer
	probe := h.command(ctx, `uname -m; [ -x `+p.cached()+` ] && echo cached; corescope version 2>/dev/null; exit 0`)
	probe.Stdout = &out
	if err := probe.Run(); err != nil {
		return "", fmt.Errorf("log in: %w", err)
	}
	lines := strings.Split(out.String(), "\n")
	if want := machines()[runtime.GOARCH]; lines[0] != want {
		return "", fmt.Errorf("its architecture is %q, and this program is for %s: install corescope of version %s there", lines[0], want, p.version)
	}
	for _, line := range lines[1:] {
		switch line {
		case "cached":
			return p.cached(), nil
		case "corescope " + p.version:
			if p.version != "devel" { // of which there are many
				return "corescope", nil
			}
		}
	}
	return p.cached(), h.copy(ctx, p)
}

// copy copies the program to the host.
func (h *host) copy(ctx context.Context, p *program) error {
	f, err := os.Open(p.path)
	if err != nil {
		return fmt.Errorf("read the own program: %w", err)
	}
	defer f.Close()
	put := h.command(ctx, `set -e; umask 077; mkdir -p "$HOME/.cache/corescope"; t=$(mktemp "$HOME/.cache/corescope/copy.XXXXXX"); `+
		`trap 'rm -f "$t"' EXIT; cat >"$t"; chmod 700 "$t"; mv "$t" `+p.cached())
	put.Stdin = f
	if err := put.Run(); err != nil {
		return fmt.Errorf("copy the program to ~/.cache/corescope: %w", err)
	}
	return nil
}

// script runs the program on a host with the privileges of root. It sends SIGTERM to the program when
// standard input ends (sh starts programs in the background with SIGINT ignored), so that the program writes its summary. It ends with the exit code of the program.
func script(path string, args []string, env string) string {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = quote(arg)
	}
	inner := `exec 3<&0; "$0" "$@" </dev/null & p=$!; { cat <&3 >/dev/null; kill -TERM $p; } >/dev/null 2>&1 & wait $p; c=$?; kill $! 2>/dev/null; exit $c`
	return `s=; [ "$(id -u)" = 0 ] || s="sudo -n --"; exec $s env ` + env + ` sh -c ` + quote(inner) + ` ` + path + ` ` + strings.Join(words, " ")
}

// quote quotes a word for sh.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// exitCode returns the exit code of a command that has run.
func exitCode(err error) (int, bool) {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), true
	}
	return 0, err == nil
}
