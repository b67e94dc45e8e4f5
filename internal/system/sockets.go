package system

import (
	"fmt"
	"path/filepath"
	"strings"
)

// TCPSockets returns how many TCP sockets the kernel has, in all network namespaces: alloc of
// /proc/net/sockstat.
func TCPSockets(root string) (int, error) {
	path := filepath.Join(root, "proc/net/sockstat")
	text, err := readFile(path, 4096)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var inuse, orphan, tw, alloc int
		if n, _ := fmt.Sscanf(line, "TCP: inuse %d orphan %d tw %d alloc %d", &inuse, &orphan, &tw, &alloc); n == 4 {
			return alloc, nil
		}
	}
	return 0, fmt.Errorf("read %s: it tells of no TCP sockets", path)
}
