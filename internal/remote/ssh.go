package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// SSH runs the program on hosts through the user's ssh. It copies the program to hosts that do not have it.
type SSH struct{}

// command returns a command that runs a script with sh on the host: CORESCOPE_SSH with its options, such as
// "ssh -F FILE".
func (SSH) command(ctx context.Context, host string, errOut io.Writer, script string) *exec.Cmd {
	words := append(strings.Fields(cmp.Or(os.Getenv("CORESCOPE_SSH"), "ssh")), "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", host, script)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stderr = errOut
	return detached(cmd)
}

// detached makes a command ignore Ctrl-C: the tool on the host has yet to write its summary.
func detached(cmd *exec.Cmd) *exec.Cmd {
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

// prepare implements Transport.
func (t SSH) prepare(ctx context.Context, host string, p *program, errOut io.Writer) (starter, error) {
	path, err := t.find(ctx, host, p, errOut)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, args []string) *exec.Cmd {
		return t.command(ctx, host, errOut, script(path, args))
	}, nil
}

// find returns the path of the program on the host, for sh. It copies the program if the host does not have
// it.
func (t SSH) find(ctx context.Context, host string, p *program, errOut io.Writer) (string, error) {
	var out bytes.Buffer
	probe := t.command(ctx, host, errOut, `uname -m; [ -x `+p.cached()+` ] && echo cached; corescope version 2>/dev/null; exit 0`)
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
	return p.cached(), t.copy(ctx, host, p, errOut)
}

// copy copies the program to the host.
func (t SSH) copy(ctx context.Context, host string, p *program, errOut io.Writer) error {
	f, err := os.Open(p.path)
	if err != nil {
		return fmt.Errorf("read the own program: %w", err)
	}
	defer f.Close()
	put := t.command(ctx, host, errOut, `set -e; umask 077; mkdir -p "$HOME/.cache/corescope"; t=$(mktemp "$HOME/.cache/corescope/copy.XXXXXX"); `+
		`trap 'rm -f "$t"' EXIT; cat >"$t"; chmod 700 "$t"; mv "$t" `+p.cached())
	put.Stdin = f
	if err := put.Run(); err != nil {
		return fmt.Errorf("copy the program to ~/.cache/corescope: %w", err)
	}
	return nil
}

// script runs the program on a host with the privileges of root.
func script(path string, args []string) string {
	text := `s=; [ "$(id -u)" = 0 ] || s="sudo -n --"; exec $s ` + path + " " + Verb
	for _, arg := range args {
		text += " " + quote(arg)
	}
	return text
}

// quote quotes a word for sh.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
