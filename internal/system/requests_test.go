package system

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCountRequests(t *testing.T) {
	sys := t.TempDir()
	for file, text := range map[string]string{
		"block/nvme0n1/size":              "1000\n",
		"block/nvme0n1/queue/nr_requests": "1023\n",
		"block/nvme0n1/mq/0/nr_tags":      "1023\n",
		"block/nvme0n1/mq/1/nr_tags":      "1023\n",
		"block/loop0/size":                "0\n",
		"block/loop0/queue/nr_requests":   "128\n",
		"block/loop0/mq/0/nr_tags":        "128\n",
		"block/dm-0/size":                 "1000\n",
		"block/dm-0/queue/nr_requests":    "128\n",
	} {
		name := filepath.Join(sys, file)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if n := countRequests(sys); n != 2*2047 {
		t.Errorf("%d requests, want %d", n, 2*2047)
	}
	if n := countRequests(t.TempDir()); n != 0 {
		t.Errorf("%d requests without disks, want 0", n)
	}
}

func TestTableSize(t *testing.T) {
	for _, test := range []struct {
		requests      int
		entries, kept uint32
	}{
		{0, 2048, 1024}, {500, 2048, 1024}, {1025, 4096, 2048}, {20000, 65536, 32768}, {1 << 20, 1 << 17, 1 << 15},
	} {
		entries, kept := tableSize(test.requests)
		if entries != test.entries || kept != test.kept {
			t.Errorf("%d requests: %d entries and %d kept, want %d and %d", test.requests, entries, kept, test.entries, test.kept)
		}
	}
}
