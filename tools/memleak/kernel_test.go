package memleak

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

func kernel(more ...string) []string { return append(self("--kernel"), more...) }

// sum adds up the rows of the function whose stacks contain the symbol.
func sum(rows []tooltest.Row, function, symbol string) (bytes, count float64) {
	for _, r := range rows {
		if r.Str("function") == function && strings.Contains(fmt.Sprint(r["kernel_stack"]), symbol) {
			bytes += r.Num("bytes")
			count += r.Num("count")
		}
	}
	return bytes, count
}

// sizeOf returns the size of a kernel struct.
func sizeOf(t *testing.T, name string) float64 {
	t.Helper()
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var s *btf.Struct
	if err := types.TypeByName(name, &s); err != nil {
		t.Fatal(err)
	}
	return float64(s.Size)
}

// pipes opens pipes, writes pages to each, and closes all but keep of them.
func pipes(t *testing.T, n, pages, keep int) {
	t.Helper()
	b := make([]byte, os.Getpagesize())
	for i := range n {
		var p [2]int
		if err := unix.Pipe(p[:]); err != nil {
			t.Fatal(err)
		}
		for range pages {
			if _, err := unix.Write(p[1], b); err != nil {
				t.Fatal(err)
			}
		}
		end := func() { unix.Close(p[0]); unix.Close(p[1]) }
		if i < keep {
			t.Cleanup(end)
		} else {
			end()
		}
	}
}

// TestPipes checks the outstanding memory of pipes: their structs, arrays of 16 buffers, and pages.
func TestPipes(t *testing.T) {
	tooltest.OnHooks(t, "kmalloc", "kmalloc_node", "kfree", "page_alloc", "page_free", "bulk_free")
	const n, pages, keep = 100, 3, 40
	res := tooltest.JSON(t, Tool, kernel(), func() { pipes(t, n, pages, keep) })
	want := keep * (sizeOf(t, "pipe_inode_info") + 16*sizeOf(t, "pipe_buffer"))
	if bytes, count := sum(res.Rows, "kmalloc", "alloc_pipe_info"); bytes != want || count != 2*keep {
		t.Errorf("pipes have %v bytes in %v objects, want %v in %v", bytes, count, want, 2*keep)
	}
	want = float64(keep * pages * os.Getpagesize())
	if bytes, count := sum(res.Rows, "page_alloc", "pipe_write"); bytes != want || count != keep*pages {
		t.Errorf("pipes have %v bytes in %v pages, want %v in %v", bytes, count, want, keep*pages)
	}
	for _, r := range res.Rows {
		if r.Has("pid") || r.Has("user_stack") {
			t.Errorf("kernel memory is shown for a process: %v", r)
		}
	}
}

// thread returns the ID of a thread that executes functions.
func thread(t *testing.T) (tid int, do func(func())) {
	work, done := make(chan func()), make(chan int)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- unix.Gettid()
		for f := range work {
			f()
			done <- 0
		}
	}()
	t.Cleanup(func() { close(work) })
	return <-done, func(f func()) { work <- f; <-done }
}

// TestFiles checks that open files are objects of a slab cache.
func TestFiles(t *testing.T) {
	tooltest.OnHooks(t, "cache_alloc", "cache_alloc_node", "cache_free")
	const n = 200
	tid, do := thread(t)
	res := tooltest.JSON(t, Tool, []string{"--tid", fmt.Sprint(tid), "--older", "0"}, func() {
		do(func() {
			for range n {
				fd, err := unix.Open("/proc/self/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { unix.Close(fd) })
			}
		})
	})
	var files []tooltest.Row
	for _, r := range res.Rows {
		if !strings.Contains(fmt.Sprint(r["kernel_stack"]), "security") { // allocations of security modules
			files = append(files, r)
		}
	}
	// A cache can be merged with one of larger objects that occupy the same number of cache lines.
	const line = 64
	least := sizeOf(t, "file")
	bytes, count := sum(files, "kmem_cache_alloc", "alloc_empty_file")
	if bytes < n*least || bytes >= n*(least+line) || count != n {
		t.Errorf("files have %v bytes in %v objects, want %v in %v", bytes, count, n*least, n)
	}
}

// TestPerCPU checks that a per-CPU map has an element per CPU.
func TestPerCPU(t *testing.T) {
	tooltest.OnHooks(t, "percpu_alloc", "percpu_free")
	const n, bytes = 50, 24
	maps := func() (all []*ebpf.Map) {
		for range 2 {
			m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: bytes, MaxEntries: n})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
		return all
	}
	res := tooltest.JSON(t, Tool, kernel("--percpu"), func() {
		m := maps()
		t.Cleanup(func() { m[0].Close() })
		if err := m[1].Close(); err != nil {
			t.Error(err)
		}
	})
	if got, count := sum(res.Rows, "percpu_alloc", "array_map_alloc"); count < n || got != count*bytes {
		t.Errorf("a map has %v bytes in %v elements, want %v in %v", got, count, n*bytes, n)
	}
}

// join joins multicast groups on a socket, which is closed at the end of the test, and leaves some.
func join(t *testing.T, n, leave int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { unix.Close(fd) })
	for i := range n {
		group := unix.IPMreq{Multiaddr: [4]byte{224, 0, 77, byte(i)}, Interface: [4]byte{127, 0, 0, 1}}
		if err := unix.SetsockoptIPMreq(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &group); err != nil {
			t.Error(err)
		}
		if i >= leave {
			continue
		}
		if err := unix.SetsockoptIPMreq(fd, unix.IPPROTO_IP, unix.IP_DROP_MEMBERSHIP, &group); err != nil {
			t.Error(err)
		}
	}
}

// TestRCU checks that memberships of multicast groups are freed by kfree_rcu.
func TestRCU(t *testing.T) {
	tooltest.OnHooks(t, "rcu_free")
	const n, leave = 15, 10
	tid, do := thread(t)
	res := tooltest.JSON(t, Tool, []string{"--tid", fmt.Sprint(tid), "--older", "0"}, func() { do(func() { join(t, n, leave) }) })
	want := n - leave
	if !strings.Contains(fmt.Sprint(res.Ready["hooks"]), "rcu_free:") {
		t.Log("kfree_rcu cannot be traced on this kernel: all are shown")
		want = n
	}
	if _, count := sum(res.Rows, "kmalloc", "sock_kmalloc"); count != float64(want) {
		t.Errorf("%v memberships, want %v", count, want)
	}
}
