package unwind

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"testing"
)

const sectionAt = 0x10000

// frames returns an .eh_frame section for functions of 64 bytes each, from 0x1000 on.
func frames(machine elf.Machine, augmentation string, common []byte, functions ...[]byte) *section {
	regs, _ := registersOf(machine)
	entry := func(id int, body []byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(body)+4))
		return append(binary.LittleEndian.AppendUint32(b, uint32(id)), body...)
	}
	data := entry(0, slices.Concat([]byte{1}, []byte(augmentation), []byte{0, 1, 0x78, byte(regs.ra), 1, 0x1b}, common))
	for i, code := range functions {
		b := binary.LittleEndian.AppendUint32(nil, uint32(0x1000+64*i-(sectionAt+len(data)+8)))
		b = append(binary.LittleEndian.AppendUint32(b, 64), 0)
		data = append(data, entry(len(data)+4, append(b, code...))...)
	}
	return &section{data, sectionAt, binary.LittleEndian, regs}
}

// TestRules compares rows with the meaning of call frame instructions.
func TestRules(t *testing.T) {
	rsp8 := newRule(BaseSP, 8, 0, -8)
	plt := []byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}
	for _, tt := range []struct {
		name string
		code []byte
		want []Row
	}{
		{"no instructions", nil, []Row{{0x1000, rsp8}}},
		{"push", []byte{0x41, 0x0e, 16, 0x86, 2}, []Row{{0x1000, rsp8}, {0x1001, newRule(BaseSP, 16, -16, -8)}}},
		{"frame pointer", []byte{0x44, 0x0e, 16, 0x86, 2, 0x0d, 6}, []Row{{0x1000, rsp8}, {0x1004, newRule(BaseFP, 16, -16, -8)}}},
		{"restore", []byte{0x41, 0x86, 2, 0x41, 0xc6}, []Row{{0x1000, rsp8}, {0x1001, newRule(BaseSP, 8, -16, -8)}, {0x1002, rsp8}}},
		{"remember", []byte{0x0a, 0x41, 0x0e, 32, 0x42, 0x0b}, []Row{{0x1000, rsp8}, {0x1001, newRule(BaseSP, 32, 0, -8)}, {0x1003, rsp8}}},
		{"advance by 1, 2 and 4 bytes", []byte{0x02, 1, 0x0e, 16, 0x03, 2, 0, 0x0e, 24, 0x04, 4, 0, 0, 0, 0x0e, 32},
			[]Row{{0x1000, rsp8}, {0x1001, newRule(BaseSP, 16, 0, -8)}, {0x1003, newRule(BaseSP, 24, 0, -8)}, {0x1007, newRule(BaseSP, 32, 0, -8)}}},
		{"aligned stack", []byte{0x10, 6, 2, 0x76, 0, 0x0f, 3, 0x76, 0x78, 0x06}, []Row{{0x1000, newRule(BaseAtFP, -8, 0, -8)}}},
		{"unsupported CFA register", []byte{0x0c, 10, 0}, []Row{{0x1000, Rule(BaseOther)}}},
		{"PLT", append([]byte{0x0f, byte(len(plt))}, plt...), []Row{{0x1000, newRule(BasePLT, 88, 0, -8)}}},
		{"outermost", []byte{0x07, 16}, []Row{{0x1000, newRule(BaseEnd, 0, 0, 0)}}},
		{"return address in another register", []byte{0x09, 16, 0}, []Row{{0x1000, Rule(BaseOther)}}},
		{"odd distance", []byte{0x0e, 12}, []Row{{0x1000, Rule(BaseOther)}}},
		{"large distance", []byte{0x0e, 0x80, 0x80, 0x40}, []Row{{0x1000, Rule(BaseOther)}}},
		{"advance past the function", []byte{0x0e, 16, 0x02, 64, 0x0e, 24}, []Row{{0x1000, 0}}},
		{"unknown instruction", []byte{0x41, 0x3f}, []Row{{0x1000, rsp8}, {0x1001, 0}}},
		{"truncated", []byte{0x41, 0x0e}, []Row{{0x1000, rsp8}, {0x1001, 0}}},
	} {
		got, err := frames(elf.EM_X86_64, "zR", []byte{0x0c, 7, 8, 0x90, 1}, tt.code).rows(1 << 20)
		want := append(append([]Row{{0, 0}}, tt.want...), Row{0x1040, 0})
		if tt.want[len(tt.want)-1].Rule == 0 {
			want = want[:len(want)-1]
		}
		if tt.want[0].Rule == 0 {
			want = want[:1]
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: rows are %x, want %x: %v", tt.name, got, want, err)
		}
	}
}

// TestRulesARM64 checks rules before and after the return address is saved; it is in a register at
// first.
func TestRulesARM64(t *testing.T) {
	saved := []byte{0x44, 0x0e, 32, 0x9d, 4, 0x9e, 3, 0x44, 0x2d, 0xdd, 0xde, 0x0e, 0}
	got, err := frames(elf.EM_AARCH64, "zR", []byte{0x0c, 31, 0}, saved).rows(1 << 20)
	want := []Row{{0, 0}, {0x1000, newRule(BaseSP, 0, 0, 0)}, {0x1004, newRule(BaseSP, 32, -32, -24)}, {0x1008, newRule(BaseSP, 0, 0, 0)}, {0x1040, 0}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("rows are %x, want %x: %v", got, want, err)
	}
}

// TestJoined checks that adjacent functions with the same rule have a single row.
func TestJoined(t *testing.T) {
	got, err := frames(elf.EM_X86_64, "zR", []byte{0x0c, 7, 8, 0x90, 1}, nil, nil, nil).rows(1 << 20)
	if want := []Row{{0, 0}, {0x1000, newRule(BaseSP, 8, 0, -8)}, {0x10c0, 0}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("rows are %x, want %x: %v", got, want, err)
	}
	signal, err := frames(elf.EM_X86_64, "zRS", nil, nil).rows(1 << 20)
	if want := []Row{{0, 0}, {0x1000, newRule(BaseSignal, 0, 0, 0)}, {0x1040, 0}}; err != nil || !slices.Equal(signal, want) {
		t.Errorf("rows of a signal trampoline are %x, want %x: %v", signal, want, err)
	}
	if _, err := frames(elf.EM_X86_64, "zR", []byte{0x0c, 7, 8, 0x90, 1}, []byte{0x41, 0x0e, 16}, nil).rows(1); err == nil {
		t.Error("no error for more rows than the limit")
	}
}

// TestLibc checks that nearly all code of the C library has a rule; some assembly has none.
func TestLibc(t *testing.T) {
	const path = "/lib/x86_64-linux-gnu/libc.so.6"
	f, err := elf.Open(path)
	if err != nil {
		t.Skipf("no C library at %s: %v", path, err)
	}
	defer f.Close()
	var c code
	if err := c.read(f, "", 1<<20); err != nil {
		t.Fatal(err)
	}
	text, without := f.Section(".text"), uint64(0)
	for i, r := range c.rows[:len(c.rows)-1] {
		if r.Rule == 0 && uint64(r.PC) >= text.Addr && uint64(r.PC) < text.Addr+text.Size {
			without += uint64(c.rows[i+1].PC - r.PC)
		}
	}
	if len(c.rows) < 10_000 || without > text.Size/50 {
		t.Errorf("%d rows, want 10,000; %d of %d bytes have no rule, want at most 2 %%", len(c.rows), without, text.Size)
	}
}

// FuzzRows checks that rows of malformed sections are sorted and that parsing ends.
func FuzzRows(f *testing.F) {
	f.Add(frames(elf.EM_X86_64, "zR", []byte{0x0c, 7, 8, 0x90, 1}, []byte{0x41, 0x0e, 16, 0x86, 2}, nil).data)
	f.Add(frames(elf.EM_X86_64, "zPLRS", nil, []byte{0x0f, 3, 0x76, 0x78, 0x06}).data)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, m := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
			regs, _ := registersOf(m)
			rows, err := (&section{data, sectionAt, binary.LittleEndian, regs}).rows(1 << 16)
			if err == nil && !slices.IsSortedFunc(rows, func(a, b Row) int { return int(int64(a.PC) - int64(b.PC)) }) {
				t.Errorf("rows are not in order: %x", rows)
			}
		}
	})
}

func BenchmarkLibc(b *testing.B) {
	for b.Loop() {
		f, err := elf.Open("/lib/x86_64-linux-gnu/libc.so.6")
		if err != nil {
			b.Skip(err)
		}
		var c code
		if err := c.read(f, "", 1<<20); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
