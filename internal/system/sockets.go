package system

import (
	"fmt"
	"path/filepath"
	"strings"
)

// TCPSockets returns the number of TCP sockets in all network namespaces: the value alloc in
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
	return 0, fmt.Errorf("read %s: no line with the number of TCP sockets", path)
}
