package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is a command of this machine and the Debian package that contains it.
type program struct{ command, pkg string }

// emulators are the programs that run the machines, by architecture.
var emulators = map[string]program{
	"amd64": {"qemu-system-x86_64", "qemu-system-x86"},
	"arm64": {"qemu-system-aarch64", "qemu-system-arm"},
}

var mke2fs = program{"/sbin/mke2fs", "e2fsprogs"}

// install installs the program if it is missing.
func (p program) install(ctx context.Context) error {
	if _, err := exec.LookPath(p.command); err == nil {
		return nil
	}
	script := `sudo=; [ "$(id -u)" -eq 0 ] || sudo=sudo
		install="$sudo apt-get -qq -o Acquire::Retries=3 install -y --no-install-recommends $0"
		$install || { $sudo apt-get -qq update && $install; }`
	cmd := exec.CommandContext(ctx, "sh", "-c", script, p.pkg)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install %s: %w: %w: %s", p.pkg, errUnavailable, err, out)
	}
	return nil
}

// image is an unpacked kernel.
type image struct {
	vmlinuz string
	modules string // directory of its modules
}

func fetchKernel(ctx context.Context, k kernel) (*image, error) {
	dir, err := packageDir(ctx, k)
	if err != nil {
		return nil, err
	}
	// Newer packages have both in /usr/lib.
	vmlinuz, err := onlyMatch(dir, "boot/vmlinuz-*", "usr/lib/modules/*/vmlinuz")
	if err != nil {
		return nil, err
	}
	modules, err := onlyMatch(dir, "lib/modules/*", "usr/lib/modules/*")
	if err != nil {
		return nil, err
	}
	return &image{vmlinuz, modules}, nil
}

// packageDir returns the directory of the kernel's package, or of what is built from it.
func packageDir(ctx context.Context, k kernel) (string, error) {
	if k.options == "" {
		return fetch(ctx, k.suite, k.arch, k.pkg)
	}
	progress("%s: using the kernel of %s, which takes some minutes to build the first time", k.name, k.options)
	return script(ctx, "scripts/build-kernel.sh", k.pkg, k.options)
}

// fetchBusybox returns the static busybox of the architecture.
func fetchBusybox(ctx context.Context, arch string) (string, error) {
	dir, err := fetch(ctx, "bookworm", arch, "busybox-static")
	if err != nil {
		return "", err
	}
	return onlyMatch(dir, "bin/busybox", "usr/bin/busybox")
}

// fetch returns the directory of an unpacked package. It downloads the package the first time.
func fetch(ctx context.Context, suite, arch, pkg string) (string, error) {
	return script(ctx, "scripts/fetch-deb.sh", suite, arch, pkg)
}

// script runs a script that prints a directory.
func script(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %w: %s", name, strings.Join(args, " "), errUnavailable, err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}

// onlyMatch returns the only file below dir that matches the first pattern with any matches.
func onlyMatch(dir string, patterns ...string) (string, error) {
	for _, p := range patterns {
		found, err := filepath.Glob(filepath.Join(dir, p))
		if err != nil {
			return "", fmt.Errorf("find %s: %w", p, err)
		}
		if len(found) > 1 {
			return "", fmt.Errorf("find %s: %d files in %s, want 1", p, len(found), dir)
		}
		if len(found) == 1 {
			return found[0], nil
		}
	}
	return "", fmt.Errorf("find %s: not in %s", strings.Join(patterns, " or "), dir)
}
