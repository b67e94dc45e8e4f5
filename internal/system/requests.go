package system

import (
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Bounds of the kernel's table of requests.
const (
	minRequests = 1 << 11
	maxRequests = 1 << 17
	// maxKept leaves room where the table cannot grow as it is filled (before 6.1).
	maxKept = 1 << 15
)

// tableSize is how many entries the table of requests is to have, and how many of them
// are kept for the next use of their request. A table no larger than it must be stays in
// the CPU's caches.
func tableSize(requests int) (entries, kept uint32) {
	n := 1 << bits.Len(uint(2*requests))
	n = min(max(n, minRequests), maxRequests)
	return uint32(n), uint32(min(n/2, maxKept))
}

// RequestTable is how many entries a table of all block requests is to have, and how many
// of them are to be kept for the next use of their request (rq.bpf.h).
func RequestTable(root string) (entries, kept uint32) {
	return tableSize(countRequests(filepath.Join(root, "sys")))
}

// countRequests returns how many requests the disks below /sys have: for each hardware
// queue its tags, the scheduler's, and one to flush. Disks without a size are not in use.
func countRequests(sys string) (n int) {
	queues, _ := filepath.Glob(filepath.Join(sys, "block/*/mq/*/nr_tags"))
	for _, queue := range queues {
		disk := filepath.Join(filepath.Dir(queue), "../..")
		if readCount(filepath.Join(disk, "size")) > 0 {
			n += readCount(queue) + readCount(filepath.Join(disk, "queue/nr_requests")) + 1
		}
	}
	return n
}

// readCount is 0 for what cannot be read.
func readCount(file string) int {
	b, _ := os.ReadFile(file)
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}
