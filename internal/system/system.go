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
	"path/filepath"
	"time"

	"github.com/corescope/corescope/internal/limit"
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

// readFile reads a regular file of at most size bytes. Some of the files belong to unprivileged users.
//
// Returns a [limit.Error].
func readFile(path string, size int64) ([]byte, error) {
	data, err := limit.ReadFile(path, size)
	if err != nil {
		return nil, err
	}
	return data, nil
}
