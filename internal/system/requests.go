package system

import (
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Bounds of the size of the BPF map of requests.
const (
	minRequests = 1 << 11
	maxRequests = 1 << 17
	// maxKept leaves entries free for kernels that cannot add memory to a full map (before 6.1).
	maxKept = 1 << 15
)

// tableSize returns the size of the map of requests, and how many entries are kept after their
// request completes, for its next use. The map is as small as possible, so that it stays in the CPU
// caches.
func tableSize(requests int) (entries, kept uint32) {
	n := 1 << bits.Len(uint(2*requests))
	n = min(max(n, minRequests), maxRequests)
	return uint32(n), uint32(min(n/2, maxKept))
}

// RequestTable returns the number of entries for a map of all block requests, and how many of them
// to keep after their request completes, for its next use (rq.bpf.h).
func RequestTable(root string) (entries, kept uint32) {
	return tableSize(countRequests(filepath.Join(root, "sys")))
}

// countRequests returns the number of requests that the disks below sys can have in flight: for
// each hardware queue its tags, those of the I/O scheduler, and a flush request. Disks of size 0
// are unused.
func countRequests(sys string) (n int) {
	disks, _ := filepath.Glob(filepath.Join(sys, "block/*"))
	for _, disk := range disks {
		if readCount(filepath.Join(disk, "size")) == 0 {
			continue
		}
		scheduler := readCount(filepath.Join(disk, "queue/nr_requests"))
		queues, _ := os.ReadDir(filepath.Join(disk, "mq"))
		for _, queue := range queues {
			n += readCount(filepath.Join(disk, "mq", queue.Name(), "nr_tags")) + scheduler + 1
		}
	}
	return n
}

// readCount returns the number in a file, 0 if it cannot be read.
func readCount(file string) int {
	b, _ := os.ReadFile(file)
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}
