// Package system reads facts of this machine that a kernel event only hints at: the path and the
// container behind a cgroup id, the user behind a uid, the disk behind a device number, the wall
// clock behind a boot clock. It reads files of the kernel, of systemd and of the container runtimes;
// it talks to no daemon and knows nothing of eBPF.
//
// Every reader takes a root, a prefix to all its paths: "" or "/" is the real machine, anything
// else a tree that looks like one.
//
// Names found here (cgroups, containers, pods, users) are chosen by others and may hold any byte:
// escape them before they reach a terminal.
package system

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// missTTL is how long a failed look-up is believed. Events come faster than files change, so a miss
// must not cost a read each time; and what is missing may appear the moment after.
const missTTL = time.Second

// resolveRoot returns root without symbolic links, so that it is a prefix of what the kernel says.
func resolveRoot(root string) (string, error) {
	if root == "" {
		return "/", nil
	}
	return filepath.EvalSymlinks(root)
}

// readFile reads a regular file of at most limit bytes. Some of the files belong to unprivileged
// users, who must not be able to block us with a FIFO or feed us without end.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: longer than %d bytes", path, limit)
	}
	return data, err
}
