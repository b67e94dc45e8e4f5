package javagc

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// class is a Java class whose main reads a byte, and collects three times.
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
	body = append(body, 0xb1) // return

	var b bytes.Buffer
	write := func(all ...any) {
		for _, v := range all {
			binary.Write(&b, binary.BigEndian, v)
		}
	}
	write(uint32(0xcafebabe), uint16(0), uint16(49), n+1, pool.Bytes())
	write(uint16(0x21), this, object, uint16(0), uint16(0), uint16(1))
	write(uint16(9), main, args, uint16(1), code, uint32(12+len(body)), uint16(1), uint16(1), uint32(len(body)), body)
	write(uint16(0), uint16(0), uint16(0))
	return b.Bytes()
}

// TestJava compares with Java's own log of what it collects.
func TestJava(t *testing.T) {
	path, err := exec.LookPath("java")
	if err != nil {
		t.Skipf("there is no Java: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Collect.class"), class(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-Xlog:gc", "-XX:+UseSerialGC", "-Xmx32m", "-cp", dir, "Collect")
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
	if line, err := out.ReadString('\n'); err != nil || !strings.Contains(line, "Using Serial") {
		t.Skipf("this Java does not say that it has begun: %q, %v", line, err)
	}
	var log []byte
	res := tooltest.JSON(t, Tool, nil, func() {
		stdin.Write([]byte{'\n'})
		log, _ = io.ReadAll(out)
		cmd.Wait()
	})
	mine := res.Where(func(r tooltest.Row) bool {
		return r.Num("pid") == float64(cmd.Process.Pid) && r.Str("what") == "collection"
	})
	pauses := regexp.MustCompile(`Pause Full .* ([0-9.]+)ms`).FindAllSubmatch(log, -1)
	if len(pauses) != 3 {
		t.Fatalf("Java has not collected three times: %s", log)
	}
	if len(res.Events) == 0 && len(res.Ready.List("hooks")) > 0 && !strings.Contains(strings.Join(res.Ready.List("hooks"), " "), "libjvm.so") {
		t.Skip("this Java has no probes built in: none was found in its libjvm.so")
	}
	if len(mine) != len(pauses) {
		t.Fatalf("%d collections of %d: %v", len(mine), len(pauses), mine)
	}
	for i, pause := range pauses {
		ms, err := strconv.ParseFloat(string(pause[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		// Java measures from within the probes.
		if mine[i]["full"] != true || mine[i].Num("delta_ns") < (ms-0.001)*1e6 {
			t.Errorf("collection %v, Java says it took %v ms", mine[i], ms)
		}
	}
}
