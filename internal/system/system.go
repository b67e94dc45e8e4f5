// Package system reads facts about this machine, mainly to translate IDs in events: the path and
// the container of a cgroup ID, the user of a UID, the disk of a device number, the wall time of a
// boot time. It reads files of the kernel, of systemd and of the container runtimes. It does not
// connect to daemons and does not depend on BPF.
//
// Most functions take a root, the prefix of all paths: "" or "/" for this machine, or a directory
// with a copy of its files.
//
// Names of cgroups, containers, pods and users are untrusted and can contain any byte. Escape them
// before printing them to a terminal.
package system

import (
	"path/filepath"
	"time"

	"github.com/corescope/corescope/internal/limit"
)

// missTTL is the time for which the result of a lookup is cached. Without it, each event of an
// unknown cgroup or disk would read files; with a longer one, new names would appear late.
const missTTL = time.Second

// resolveRoot returns root without symbolic links, so that it is a prefix of paths from the kernel.
func resolveRoot(root string) (string, error) {
	if root == "" {
		return "/", nil
	}
	return filepath.EvalSymlinks(root)
}

// readFile reads a regular file of at most size bytes. The limit matters for files of unprivileged
// users.
//
// Returns a [limit.Error].
func readFile(path string, size int64) ([]byte, error) {
	data, err := limit.ReadFile(path, size)
	if err != nil {
		return nil, err
	}
	return data, nil
}
