package javagc

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// class returns a Java class whose main reads a byte, requests three collections, and then
// allocates 3,000 arrays of 32 KB, of which it keeps the last 300: too much for the heap without
// collections.
func class() []byte {
	var pool bytes.Buffer
	n := uint16(0)
	entry := func(tag byte, refs ...uint16) uint16 {
		pool.WriteByte(tag)
		binary.Write(&pool, binary.BigEndian, refs)
		n++
		return n
	}
	utf8 := func(s string) uint16 {
		index := entry(1, uint16(len(s)))
		pool.WriteString(s)
		return index
	}
	class := func(name string) uint16 { return entry(7, utf8(name)) }
	member := func(tag byte, class uint16, name, kind string) uint16 {
		return entry(tag, class, entry(12, utf8(name), utf8(kind)))
	}
	system := class("java/lang/System")
	in := member(9, system, "in", "Ljava/io/InputStream;")
	read := member(10, class("java/io/InputStream"), "read", "()I")
	gc := member(10, system, "gc", "()V")
	this, object := class("Collect"), class("java/lang/Object")
	main, args, code := utf8("main"), utf8("([Ljava/lang/String;)V"), utf8("Code")

	op := func(code byte, ref uint16) []byte { return []byte{code, byte(ref >> 8), byte(ref)} }
	body := append(op(0xb2, in), op(0xb6, read)...)    // getstatic, invokevirtual
	body = append(append(body, 0x57), op(0xb8, gc)...) // pop, invokestatic
	body = append(append(body, op(0xb8, gc)...), op(0xb8, gc)...)
	body = append(append(body, op(0x11, 300)...), op(0xbd, object)...) // sipush, anewarray
	body = append(body, 0x4c, 0x03, 0x3d)                              // astore_1, iconst_0, istore_2
	loop := len(body)
	body = append(append(body, 0x2b, 0x1c), op(0x11, 300)...)       // aload_1, iload_2, sipush
	body = append(append(body, 0x70), op(0x11, 32767)...)           // irem, sipush
	body = append(body, 0xbc, 8, 0x53, 0x84, 2, 1, 0x1c)            // newarray of bytes, aastore, iinc, iload_2
	body = append(body, op(0x11, 3000)...)                          // sipush
	body = append(body, op(0xa1, uint16(int16(loop-len(body))))...) // if_icmplt
	body = append(body, 0xb1)                                       // return

	var b bytes.Buffer
	write := func(all ...any) {
		for _, v := range all {
			binary.Write(&b, binary.BigEndian, v)
		}
	}
	write(uint32(0xcafebabe), uint16(0), uint16(49), n+1, pool.Bytes())
	write(uint16(0x21), this, object, uint16(0), uint16(0), uint16(1))
	write(uint16(9), main, args, uint16(1), code, uint32(12+len(body)), uint16(4), uint16(3), uint32(len(body)), body)
	write(uint16(0), uint16(0), uint16(0))
	return b.Bytes()
}

// TestJava compares with Java's own log of collections, for each collector that pauses the program.
func TestJava(t *testing.T) {
	path, err := exec.LookPath("java")
	if err != nil {
		t.Skipf("Java is not installed: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Collect.class"), class(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, collector := range []string{"Serial", "Parallel", "G1"} {
		t.Run(collector, func(t *testing.T) {
			testCollector(t, exec.Command(path, "-Xlog:gc", "-XX:+Use"+collector+"GC", "-Xmx20m", "-cp", dir, "Collect"))
		})
	}
}

// pause matches a line of the log.
var pause = regexp.MustCompile(`\[gc *\] GC\(\d+\) Pause (\w+).* [0-9.]+ms`)

func testCollector(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	res, log, jvm := collect(t, cmd)
	mine := res.Where(func(r tooltest.Row) bool {
		return r.Num("pid") == float64(cmd.Process.Pid) && r.Str("what") == "collection"
	})
	pauses := pause.FindAllSubmatch(log, -1)
	if len(pauses) < 10 {
		t.Fatalf("Java has logged %d collections: %s", len(pauses), log)
	}
	if len(res.Events) == 0 && !strings.Contains(strings.Join(res.Ready.List("hooks"), " "), "libjvm.so") {
		if hasProbes(t, jvm) {
			t.Fatalf("%s has probes, the tool attached to %v", jvm, res.Ready.List("hooks"))
		}
		t.Skipf("this Java has no USDT probes: %s has no note sections", jvm)
	}
	full := 0
	for i, r := range mine {
		if r["full"] == true {
			full++
		}
		if i < len(pauses) && (r["full"] == true) != (string(pauses[i][1]) == "Full") {
			t.Errorf("collection %v, the log has %s", r, pauses[i][0])
		}
	}
	if len(mine) != len(pauses) || full == 0 || full == len(mine) {
		t.Errorf("%d collections, %d of them full; the log has %d pauses: %s", len(mine), full, len(pauses), log)
	}
}

// collect runs Java until it exits, and returns the rows, its log and the path of its libjvm.so.
func collect(t *testing.T, cmd *exec.Cmd) (res *tooltest.Result, log []byte, jvm string) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	out := bufio.NewReader(stdout)
	if line, err := out.ReadString('\n'); err != nil || !strings.Contains(line, "Using ") {
		t.Fatalf("Java prints %q, %v, want a line about its collector", line, err)
	}
	jvm = mappedJVM(t, cmd.Process.Pid)
	res = tooltest.JSON(t, Tool, nil, func() {
		stdin.Write([]byte{'\n'})
		log, _ = io.ReadAll(out)
		cmd.Wait()
	})
	return res, log, jvm
}

// mappedJVM returns the path of the libjvm.so that a process has mapped.
func mappedJVM(t *testing.T, pid int) string {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if f := strings.Fields(line); strings.HasSuffix(f[len(f)-1], "/libjvm.so") {
			return f[len(f)-1]
		}
	}
	t.Fatalf("Java has not mapped a libjvm.so: %s", maps)
	return ""
}

// hasProbes reports whether a file contains USDT probes.
func hasProbes(t *testing.T, path string) bool {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Section(".note.stapsdt") != nil
}
