package stack

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func loadFixture(t *testing.T) *Kernel {
	t.Helper()
	f, err := os.Open("testdata/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	k, err := ParseKallsyms(f)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKernelNames(t *testing.T) {
	k := loadFixture(t)
	tests := []struct {
		addr   uint64
		name   string
		offset uint64
		module string
	}{
		{0x10, "", 0, ""},                                       // below the kernel, like offsets of per-CPU variables
		{0xffffffff80ffffff, "", 0, ""},                         // before the first symbol
		{0xffffffff81000000, "startup_64", 0, "[kernel]"},       // not _stext
		{0xffffffff81000105, "__pfx_do_one", 5, "[kernel]"},     // not startup_64
		{0xffffffff81000110, "do_one", 0, "[kernel]"},           //
		{0xffffffff810001ff, "do_one", 0xef, "[kernel]"},        //
		{0xffffffff81000210, "__x64_sys_getpid", 0, "[kernel]"}, // not the 32-bit name
		{0xffffffff81000301, "strong_name", 1, "[kernel]"},      //
		{0xffffffff81000341, "foo::bar", 1, "[kernel]"},         //
		{0xffffffff81000400, "", 0, ""},                         // a marker is not a function,
		{0xffffffff811fffff, "", 0, ""},                         // even if the next symbol is far away
		{0xffffffff81209987, "last_function", 0x9987, "[kernel]"},
		{0xffffffff81209988, "", 0, ""}, // _etext
		{0xffffffff82400001, "", 0, ""}, // data
		{0xffffffff82400009, "", 0, ""},
		{0xffffffff830000ff, "init_function", 0xff, "[kernel]"},
		{0xffffffff83000100, "", 0, ""},
		{0xffffffffc010003f, "ext4_read", 0x3f, "[ext4]"},
		{0xffffffffc0100fff, "ext4_exit", 0xfbf, "[ext4]"}, // to the end of its page,
		{0xffffffffc0101000, "", 0, ""},                    // but not the data that follows
		{0xffffffffc0104000, "", 0, ""},
		{0xffffffffc0200fff, "nf_hook", 0xfff, "[nf]"},
		{0xffffffffc0201000, "", 0, ""},
		{0xffffffffc03020ff, "bpf_prog_6deef7357e7b4530_first", 0x20ff, "[bpf]"},
		{0xffffffffc03120ff, "bpf_prog_7deef7357e7b4530_second", 0xffff, "[bpf]"},
		{0xffffffffc0312100, "", 0, ""},
	}
	for _, test := range tests {
		f := k.Append(nil, []uint64{test.addr})[0]
		if f.Name != test.name {
			t.Errorf("%x: got %q, want %q", test.addr, f.Name, test.name)
			continue
		}
		if !f.Kernel || f.Addr != test.addr {
			t.Errorf("%x: %#v", test.addr, f)
		}
		if test.name == "" {
			if f.Reason != NoSymbols || f.Module != "[kernel]" || f.Offset != test.addr {
				t.Errorf("%x: %#v", test.addr, f)
			}
		} else if f.Offset != test.offset || f.Module != test.module || f.Reason != Named {
			t.Errorf("%x: %#v", test.addr, f)
		}
	}
}

func TestKernelReturnAddresses(t *testing.T) {
	k := loadFixture(t)
	tests := []struct {
		addr uint64
		want string
	}{
		{0xffffffff81000120, "do_one+0x10"},
		{0xffffffff81000200, "do_one+0xf0"}, // after a call at the end of do_one
		{0xffffffff81000110, "do_one+0x0"},  // interrupted there: padding contains no calls
		{0xffffffff81209988, "last_function+0x9988"},
	}
	for _, test := range tests {
		f := k.Append(nil, []uint64{1, test.addr})[1]
		if got := fmt.Sprintf("%s+%#x", f.Name, f.Offset); got != test.want {
			t.Errorf("%x: got %s, want %s", test.addr, got, test.want)
		}
	}
}

func TestKernelStackEndsAtZero(t *testing.T) {
	k := loadFixture(t)
	addrs := []uint64{0xffffffff81000110, 0xffffffff81000210, 0, 0xffffffff81000110}
	if got := len(k.Append(nil, addrs)); got != 2 {
		t.Errorf("got %d frames, want 2", got)
	}
}

func TestKernelRestricted(t *testing.T) {
	for _, text := range []string{"", "0000000000000000 T _stext\n0000000000000000 t foo\t[ext4]\n"} {
		k, err := ParseKallsyms(strings.NewReader(text))
		if !errors.Is(err, ErrRestricted) {
			t.Errorf("%q: got error %v", text, err)
		}
		f := k.Append(nil, []uint64{0xffffffff81000000})[0]
		if f.Reason != Restricted || f.Name != "" {
			t.Errorf("%q: %#v", text, f)
		}
	}
}

func TestKernelMalformed(t *testing.T) {
	for _, line := range []string{"x", "ffffffff81000000", "ffffffff81000000 T", "ffffffff81000000 T ", " T foo", "ffffffff81000000-T foo"} {
		k, err := ParseKallsyms(strings.NewReader(line + "\n"))
		if err == nil || errors.Is(err, ErrRestricted) {
			t.Errorf("%q: got error %v", line, err)
		}
		if f := k.Append(nil, []uint64{1})[0]; f.Reason != Unreadable {
			t.Errorf("%q: %#v", line, f)
		}
	}
}

// TestKernelRefresh replaces a BPF program by another one at the same address, and loads a module.
func TestKernelRefresh(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kallsyms")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	clock := time.Now()
	k := &Kernel{path: file, now: func() time.Time { return clock }}
	name := func(addr uint64) string { return k.Append(nil, []uint64{addr})[0].Name }
	const text, program, module = 0xffffffff81000010, 0xffffffffc0000010, 0xffffffffc0100010

	write("ffffffff81000000 T _one\nffffffff81000100 T _etext\nffffffffc0000000 t bpf_prog_a\t[bpf]\n")
	if got := name(program); got != "bpf_prog_a" {
		t.Errorf("got %q", got)
	}
	write("ffffffff81000000 T _two\nffffffff81000100 T _etext\nffffffffc0000008 t bpf_prog_b\t[bpf]\nffffffffc0100000 t init\t[late]\n")
	if got := name(program); got != "bpf_prog_a" {
		t.Errorf("kallsyms was read again too soon: %q", got)
	}
	clock = clock.Add(time.Minute)
	if got := name(text); got != "_one" {
		t.Errorf("kallsyms was read again for a function of the kernel: %q", got)
	}
	if got := name(program); got != "bpf_prog_b" {
		t.Errorf("got %q", got)
	}
	if got := name(module); got != "init" {
		t.Errorf("got %q", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(time.Minute)
	if got := name(program); got != "bpf_prog_b" {
		t.Errorf("after kallsyms was removed: got %q", got)
	}
}

// loadLive returns the symbols of the running kernel, or skips the test if they are hidden.
func loadLive(t testing.TB) *Kernel {
	t.Helper()
	k := NewKernel()
	err := k.Load()
	if errors.Is(err, ErrRestricted) && hidesAddresses(t) || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKernelLive looks up the address of every text symbol of the running kernel. The result must
// be one of the names of that address.
func TestKernelLive(t *testing.T) {
	k := loadLive(t)
	data, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[uint64][]string)
	lines := bufio.NewScanner(strings.NewReader(string(data)))
	for lines.Scan() {
		var addr uint64
		var kind, name string
		if _, err := fmt.Sscanf(lines.Text(), "%x %s %s", &addr, &kind, &name); err != nil {
			t.Fatal(err)
		}
		if strings.Contains("tTwW", kind) && !strings.HasPrefix(name, "bpf_") { // BPF programs can be unloaded meanwhile
			names[addr] = append(names[addr], name)
		}
	}
	unnamed := 0
	for addr, want := range names {
		f := k.Append(nil, []uint64{addr})[0]
		if f.Name == "" {
			unnamed++
			t.Logf("no name for %q", want)
			continue
		}
		if f.Offset != 0 || !contains(want, f.Name) {
			t.Errorf("%x: got %s+%#x, want one of %q", addr, f.Name, f.Offset, want)
		}
	}
	if len(names) < 1000 || unnamed > 20 {
		t.Errorf("%d of %d addresses have no name", unnamed, len(names))
	}
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name || demangle(n) == name {
			return true
		}
	}
	return false
}

// hidesAddresses reports whether all addresses in /proc/kallsyms are zero.
func hidesAddresses(t testing.TB) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Trim(strings.Fields(line)[0], "0") != "" {
			return false
		}
	}
	return true
}
