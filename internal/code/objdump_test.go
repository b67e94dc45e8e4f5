package code

import (
	"bufio"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// compared returns the number of instructions to compare.
func compared(t *testing.T) int {
	if testing.Short() {
		return 20_000
	}
	return 200_000
}

// TestObjdump compares decoded instructions of the C library with the output of objdump.
func TestObjdump(t *testing.T) {
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Skipf("objdump is not installed: %v", err)
	}
	found, _ := filepath.Glob("/lib/*-linux-gnu/libc.so.6")
	if len(found) == 0 {
		t.Skip("no libc.so.6 in /lib/*-linux-gnu")
	}
	file, err := elf.Open(found[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := New(file)
	if err != nil {
		t.Fatal(err)
	}
	code := file.Section(".text")
	data, err := code.Data()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(objdump, "-d", "-w", "-j", ".text", found[0])
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	n := 0
	for in := bufio.NewScanner(out); in.Scan() && n < compared(t); {
		line, ok := parseLine(in.Text())
		if !ok {
			continue
		}
		n++
		got, ok := text.decode(data[line.pc-code.Addr:], line.pc)
		if !ok || got.Size != line.size || got.Kind != line.kind || line.target != 0 && got.Target != line.target {
			t.Errorf("%s: %+v, %v, want %+v", in.Text(), got, ok, line)
		}
	}
	if n < 10_000 {
		t.Errorf("objdump printed %d instructions, want at least 10,000", n)
	}
}

// line is an instruction in the output of objdump.
type line struct {
	pc, target uint64
	size       int
	kind       Kind
}

// parseLine parses "address: <tab> bytes <tab> instruction".
func parseLine(text string) (l line, ok bool) {
	fields := strings.Split(text, "\t")
	if len(fields) < 3 {
		return l, false
	}
	pc, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(fields[0]), ":"), 16, 64)
	if err != nil || strings.Contains(fields[2], "(bad)") || strings.HasPrefix(fields[2], ".") {
		return l, false
	}
	l.pc, l.size = pc, len(strings.ReplaceAll(fields[1], " ", ""))/2
	words := strings.Fields(strings.Join(fields[2:], " "))
	for len(words) > 1 && isPrefix(words[0]) {
		words = words[1:]
	}
	name, _, _ := strings.Cut(words[0], ",")
	if l.kind = kindOf(name, words[1:]); l.kind != Jump && l.kind != Branch {
		return l, true
	}
	for _, word := range words[1:] {
		if l.target, err = strconv.ParseUint(strings.TrimPrefix(strings.TrimSuffix(word, ","), "0x"), 16, 64); err == nil && l.target > 0xff {
			return l, true
		}
	}
	return l, true
}

func isPrefix(word string) bool {
	switch word {
	case "bnd", "notrack", "rep", "repz", "repnz", "data16", "cs", "ds", "xacquire", "xrelease", "lock":
		return true
	}
	return strings.HasPrefix(word, "rex")
}

func kindOf(name string, operands []string) Kind {
	isIndirect := len(operands) > 0 && strings.HasPrefix(operands[0], "*")
	if runtime.GOARCH == "arm64" {
		return kindOfARM64(name)
	}
	switch {
	case name == "ret":
		return Return
	case name == "call":
		return Call
	case name == "jmp" && isIndirect:
		return JumpIndirect
	case name == "jmp":
		return Jump
	case strings.HasPrefix(name, "j"), strings.HasPrefix(name, "loop"), name == "xbegin":
		return Branch
	case name == "syscall", name == "int":
		return Syscall
	case name == "ud2", name == "ud1", name == "ud0", name == "int3", name == "hlt":
		return Stop
	}
	return Plain
}

func kindOfARM64(name string) Kind {
	switch {
	case name == "ret", name == "retaa", name == "retab":
		return Return
	case name == "bl", name == "blr", name == "blraa":
		return Call
	case name == "b":
		return Jump
	case name == "br", name == "braa":
		return JumpIndirect
	case strings.HasPrefix(name, "b."), name == "cbz", name == "cbnz", name == "tbz", name == "tbnz":
		return Branch
	case name == "svc":
		return Syscall
	case name == "udf", name == "brk":
		return Stop
	}
	return Plain
}
