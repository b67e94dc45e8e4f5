package fsslower

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestFileslower makes a read from a pipe wait, and reads and writes a file in memory.
func TestFileslower(t *testing.T) {
	const wait = 60 * time.Millisecond
	fileslower := Tool.As("fileslower")
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	memory, err := unix.MemfdCreate("in-memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memory)
	var took time.Duration
	load := func() {
		buf := make([]byte, 3000)
		unix.Pwrite(memory, buf, 0)
		unix.Pread(memory, buf[:1000], 500)
		unix.Fsync(memory)
		go func() {
			time.Sleep(wait)
			unix.Write(pipe[1], buf[:7])
		}()
		begin := time.Now()
		unix.Read(pipe[0], buf)
		took = time.Since(begin)
	}
	res := tooltest.JSON(t, fileslower, append(self(), "-a", "--", "0"), load)
	var got []string
	for _, r := range res.Where(func(r tooltest.Row) bool { return r.Str("file") == "memfd:in-memory" }) {
		got = append(got, r.Str("operation")+" "+strconv.Itoa(int(r.Num("bytes")))+" at "+strconv.Itoa(int(r.Num("offset_bytes"))))
	}
	if want := []string{"write 3000 at 0", "read 1000 at 500"}; !slices.Equal(got, want) {
		t.Errorf("rows of the file %q, want %q", got, want)
	}
	slow := res.Where(func(r tooltest.Row) bool {
		return r.Str("fs") == "pipefs" && r.Num("bytes") == 7 && r.Str("operation") == "read"
	})
	if len(slow) != 1 || time.Duration(slow[0].Num("latency_ns")) < wait/2 || time.Duration(slow[0].Num("latency_ns")) > took {
		t.Errorf("rows of the slow read %v, want one of about %v, at most %v", slow, wait, took)
	}
	res = tooltest.JSON(t, fileslower, append(self(), "--", "0"), load)
	if rows := res.Where(func(r tooltest.Row) bool { return r.Str("fs") == "pipefs" }); len(rows) > 0 {
		t.Errorf("rows of pipes without -a: %v", rows)
	}
}

// TestAttaching makes system calls while the tool attaches and detaches: those whose entry or
// return is not observed for that reason are not lost.
func TestAttaching(t *testing.T) {
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var threads sync.WaitGroup
	for range 2 {
		threads.Go(func() {
			buf := make([]byte, 1)
			for {
				select {
				case <-stop:
					return
				default:
					unix.Read(int(zero.Fd()), buf)
				}
			}
		})
	}
	defer threads.Wait()
	defer close(stop)
	res := tooltest.JSON(t, Tool.As("fileslower"), append(self(), "-a", "--", "100000"), func() {})
	if reasons := res.Summary.Object("reasons"); reasons.Num("unobserved") != 0 {
		t.Errorf("lost %v, want none: the system calls began before the tool was attached, or ended after it", reasons)
	}
}

func TestFileslowerText(t *testing.T) {
	tooltest.AnyAttachType(t)
	dir := t.TempDir()
	out := tooltest.Text(t, Tool.As("fileslower"), append(self(), "--", "0"), func() {
		if err := os.WriteFile(dir+"/written", make([]byte, 10), 0o600); err != nil {
			t.Error(err)
		}
	})
	lines := strings.Split(out, "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME(s) COMM TID D BYTES LAT(ms) FILENAME" {
		t.Errorf("header %q", got)
	}
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, " W 10 ") && strings.HasSuffix(l, " written") }) {
		t.Errorf("no row of the write: %q", lines)
	}
	tooltest.Fails(t, Tool, []string{"--all-files"}, tool.ExitUsage, "--system-calls")
}
