package virtiostat

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// disk returns the names of a virtio disk and its virtio device.
func disk(t *testing.T) (name, device string) {
	t.Helper()
	tooltest.KernelFunctions(t)
	disks, err := filepath.Glob("/sys/bus/virtio/drivers/virtio_blk/virtio*/block/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range disks {
		if _, err := os.Stat(filepath.Join("/dev", filepath.Base(d))); err == nil {
			return filepath.Base(d), filepath.Base(filepath.Dir(filepath.Dir(d)))
		}
	}
	t.Skip("the machine has no virtio disk: /sys/bus/virtio/drivers/virtio_blk is empty")
	return "", ""
}

// statistics returns the requests, and the bytes read and written, that the kernel has counted.
func statistics(t *testing.T, disk string) (requests, read, written float64) {
	t.Helper()
	text, err := os.ReadFile("/sys/block/" + disk + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	var n []float64
	for _, f := range strings.Fields(string(text)) {
		x, err := strconv.ParseFloat(f, 64)
		if err != nil {
			t.Fatal(err)
		}
		n = append(n, x)
	}
	requests = n[0] + n[4]
	for i := 11; i < len(n); i += 4 { // discards, flushes
		requests += n[i]
	}
	return requests, n[2] * 512, n[6] * 512
}

// TestDisk reads from a disk, and compares with the kernel's counts. A request has a header of at
// least 16 bytes, data, and a status of at least one byte.
func TestDisk(t *testing.T) {
	name, device := disk(t)
	const n, size = 50, 4096
	f, err := os.OpenFile("/dev/"+name, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	allBefore, readBefore, writtenBefore := statistics(t, name)
	res := tooltest.JSON(t, Tool, []string{"-d", "virtio_blk", "-n", device, "60"}, func() {
		tooltest.ReadBlocks(t, f, n)
	})
	all, read, written := statistics(t, name)
	all, read, written = all-allBefore, read-readBefore, written-writtenBefore
	var in, out, inBytes, outBytes float64
	for _, r := range res.Rows {
		if r.Str("driver") != "virtio_blk" || r.Str("device") != device || !strings.HasPrefix(r.Str("queue"), "req.") {
			t.Errorf("row of another device: %v", r)
		}
		in += r.Num("in_sgs")
		out += r.Num("out_sgs")
		inBytes += r.Num("in_bytes")
		outBytes += r.Num("out_bytes")
	}
	t.Logf("%v buffers with %v bytes for the device to write, %v with %v to read; %v requests read %v bytes and wrote %v",
		in, inBytes, out, outBytes, all, read, written)
	// Other I/O of the disk can be counted by the kernel alone, before and after the run.
	if in < 2*n || out < n || inBytes < n*(size+1) || outBytes < n*16 {
		t.Errorf("%d reads of %d bytes: %v buffers with %v bytes in, %v with %v out", n, size, in, inBytes, out, outBytes)
	}
	if inBytes > read+16*all || outBytes > written+32*all {
		t.Errorf("%v bytes in and %v out, but %v requests that read %v bytes and wrote %v", inBytes, outBytes, all, read, written)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost", lost)
	}
}

func TestFilter(t *testing.T) {
	name, _ := disk(t)
	f, err := os.OpenFile("/dev/"+name, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, flag := range []string{"--driver", "--devname"} {
		res := tooltest.JSON(t, Tool, []string{flag, "nosuch", "60"}, func() { tooltest.ReadBlocks(t, f, 5) })
		if len(res.Rows) != 0 {
			t.Errorf("%s nosuch: %v", flag, res.Rows)
		}
	}
	out := tooltest.Text(t, Tool, []string{"-T", "60"}, func() { tooltest.ReadBlocks(t, f, 5) })
	// The first line is the time of the table.
	lines := strings.Split(out, "\n")
	if len(lines) < 2 || strings.Join(strings.Fields(lines[1]), " ") != "TIME Driver Device VQ Name In SGs Out SGs In BW Out BW" {
		t.Errorf("header in %q", lines)
	}
}
