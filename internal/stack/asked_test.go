package stack

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
)

func TestParseSymbol(t *testing.T) {
	tests := []struct {
		text, name, module string
		offset             uint64
		padding            bool
	}{
		{"do_syscall_64+0x5b/0xf0", "do_syscall_64", "[kernel]", 0x5b, false},
		{"__pfx_do_one+0x4/0x10", "__pfx_do_one", "[kernel]", 4, true},
		{"__cfi_do_one+0x0/0x10", "__cfi_do_one", "[kernel]", 0, true},
		{"ext4_sync_file+0x1d/0x3a0 [ext4]", "ext4_sync_file", "[ext4]", 0x1d, false},
		{"operator+0x1+0x10/0x20", "operator+0x1", "[kernel]", 0x10, false},
		{"bpf_prog_6deef7357e7b4530_sd_devices+0x1/0x40", "bpf_prog_6deef7357e7b4530_sd_devices", "[bpf]", 1, false},
		{"bpf_prog_6deef7357e7b4530+0x1/0x40", "bpf_prog_6deef7357e7b4530", "[bpf]", 1, false},
		{"bpf_trampoline_6442466132+0x4f/0x1000", "bpf_trampoline_6442466132", "[bpf]", 0x4f, false},
		{"bpf_prog_run+0x1/0x40", "bpf_prog_run", "[kernel]", 1, false},
		{"bpf_prog_array_copy_core+0x1/0x40", "bpf_prog_array_copy_core", "[kernel]", 1, false},
		{"bpf_trampoline_enter+0x1/0x40", "bpf_trampoline_enter", "[kernel]", 1, false},
	}
	for _, test := range tests {
		want := kernelSymbol{test.name, test.module, test.offset, test.padding}
		if got, ok := parseSymbol(test.text); !ok || got != want {
			t.Errorf("%s: got %+v, want %+v", test.text, got, want)
		}
	}
	for _, text := range []string{"", "0xffffffff82209988", "+0x1/0x2", "f+0x", "f+0x1", "f+0x1x/0x2", "f", " [ext4]"} {
		if got, ok := parseSymbol(text); ok {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}

// TestAsk checks which addresses the kernel is asked for, and that the others are looked up in
// /proc/kallsyms.
func TestAsk(t *testing.T) {
	answers := map[uint64]string{
		0x10f:  "first+0xf/0x10",
		0x110:  "second+0x0/0x10",
		0x21f:  "__pfx_third+0xf/0x10",
		0x220:  "third+0x0/0x10",
		0x300:  "f+0x10/0x20 [module]",
		0x1000: "0x1000",
	}
	asked := map[uint64]int{}
	k := loadFixture(t)
	k.Ask(func(addr uint64) (string, error) {
		asked[addr]++
		return cmp.Or(answers[addr], fmt.Sprintf("%#x", addr)), nil
	})
	const listed = 0xffffffff81000120 // see TestKernelReturnAddresses
	tests := []struct {
		addrs []uint64
		want  string // of the last
	}{
		{[]uint64{0x110}, "second+0x0 [kernel]"},
		{[]uint64{1, 0x110}, "first+0x10 [kernel]"},
		{[]uint64{1, 0x220}, "third+0x0 [kernel]"}, // interrupted there: padding contains no calls
		{[]uint64{0x300}, "f+0x10 [module]"},
		{[]uint64{listed}, "do_one+0x10 [kernel]"},
		{[]uint64{0x1000}, "+0x1000 [kernel]"},
	}
	for range 2 {
		for _, test := range tests {
			frames := k.Append(nil, test.addrs)
			f := frames[len(frames)-1]
			if got := fmt.Sprintf("%s+%#x %s", f.Name, f.Offset, f.Module); got != test.want {
				t.Errorf("%x: got %s, want %s", test.addrs, got, test.want)
			}
			if isNamed := f.Name != ""; isNamed != (f.Reason == Named) {
				t.Errorf("%x: %+v", test.addrs, f)
			}
		}
	}
	for addr, want := range map[uint64]int{0x110: 1, 0x10f: 1, 0x21f: 1, 0x220: 1, 0x300: 2, listed: 2, 0x1000: 2} {
		if asked[addr] != want {
			t.Errorf("%x: the kernel was asked %d times, want %d", addr, asked[addr], want)
		}
	}
}

// TestAskFails checks that the kernel is not asked again after a failure, which the next calls would repeat.
func TestAskFails(t *testing.T) {
	asked := 0
	k := loadFixture(t)
	k.Ask(func(uint64) (string, error) {
		asked++
		return "", errors.New("failed")
	})
	const listed = 0xffffffff81000120
	for range 3 {
		if f := k.Append(nil, []uint64{listed})[0]; f.Name != "do_one" {
			t.Errorf("%+v", f)
		}
	}
	if asked != 1 {
		t.Errorf("the kernel was asked %d times, want 1", asked)
	}
}

// TestAskLimit checks that answers are forgotten before they take too much memory.
func TestAskLimit(t *testing.T) {
	k := &Kernel{}
	k.Ask(func(addr uint64) (string, error) { return fmt.Sprintf("f%d+0x0/0x1", addr), nil })
	for addr := uint64(1); addr < 100_000; addr++ {
		if f := k.Append(nil, []uint64{addr})[0]; f.Name != fmt.Sprintf("f%d", addr) {
			t.Fatalf("%d: %+v", addr, f)
		}
		if len(k.known) > 1<<14 {
			t.Fatalf("%d answers in memory", len(k.known))
		}
	}
}
