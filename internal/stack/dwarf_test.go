package stack

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// inlined has the address here in inner, which is inlined in middle, which is inlined in outer.
const inlined = `#include <stdio.h>
extern char here[];
#define IN static inline __attribute__((always_inline))
IN void inner(int *x)
{
	__asm__ volatile(".globl here\nhere: nop\n" : "+r"(*x));
}
IN void middle(int *x)
{
	*x += 1;
	inner(x);
}
__attribute__((noinline)) int outer(int x)
{
	middle(&x);
	return x;
}
int main(int argc, char **argv)
{
	printf("%p\n", here), fflush(stdout);
	while (getchar() != EOF)
		;
	return outer(argc);
}
`

// describe returns name and source position of a frame.
func describe(f Frame) string {
	return fmt.Sprintf("%s %s:%d %v", f.Name, filepath.Base(f.File), f.Line, f.Inlined)
}

func details(frames []Frame) (all []string) {
	for _, f := range frames {
		all = append(all, describe(f))
	}
	return all
}

func TestDetail(t *testing.T) {
	both := []string{"inner prog.c:6 true", "middle prog.c:11 true", "outer prog.c:15 false"}
	for _, test := range []struct {
		name  string
		flags []string
		want  Detail
		bare  bool // stripped, with a separate debug file
		all   []string
	}{
		{"DWARF 5", []string{"-g", "-gdwarf-5"}, Detail{true, true}, false, both},
		{"DWARF 4", []string{"-g", "-gdwarf-4"}, Detail{true, true}, false, both},
		{"64 bits", []string{"-g", "-gdwarf64"}, Detail{true, true}, false, both},
		{"compressed", []string{"-g", "-gz=zlib"}, Detail{true, true}, false, both},
		{"debug file", []string{"-g"}, Detail{true, true}, true, both},
		{"no lines", []string{"-g"}, Detail{Inlines: true}, false, []string{"inner .:0 true", "middle .:0 true", "outer .:0 false"}},
		{"no inlines", []string{"-g"}, Detail{Lines: true}, false, []string{"outer prog.c:15 false"}},
		{"neither", []string{"-g"}, Detail{}, false, []string{"outer .:0 false"}},
		{"no information", []string{"-g0"}, Detail{true, true}, false, []string{"outer .:0 false"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := compile(t, inlined, append(test.flags, "-O2")...)
			if test.bare {
				need(t, "objcopy")
				run(t, "objcopy", "--only-keep-debug", file, file+".debug")
				run(t, "objcopy", "--strip-all", "--add-gnu-debuglink="+file+".debug", file)
			}
			c, ps := start(t, file), newProcesses(t)
			ps.SetDetail(test.want)
			frames := ps.Append(nil, c.pid(), []uint64{c.addrs[0]})
			if got := details(frames); strings.Join(got, "\n") != strings.Join(test.all, "\n") {
				t.Errorf("got %q, want %q", got, test.all)
			}
			for _, f := range frames {
				if f.Addr != c.addrs[0] || f.Module != file || f.Reason != Named {
					t.Errorf("frame is %#v", f)
				}
			}
			if used := cacheBytes(ps); used != ps.cache.bytes {
				t.Errorf("%d bytes accounted for, want %d", ps.cache.bytes, used)
			}
		})
	}
}

// cacheBytes returns the sum of the sizes of all modules.
func cacheBytes(ps *Processes) (n int64) {
	for _, m := range ps.cache.modules {
		n += m.size
	}
	return n
}

// TestDetailBounded checks that units are dropped if they exceed the limit, and decoded again.
func TestDetailBounded(t *testing.T) {
	c, ps := start(t, compile(t, inlined, "-g", "-O2")), newProcesses(t)
	ps.SetDetail(Detail{true, true})
	first := details(ps.Append(nil, c.pid(), []uint64{c.addrs[0]}))
	for _, m := range ps.cache.modules {
		if s := m.loaded.Load(); s != nil && s.debug != nil {
			s.debug.size = maxDecoded + 1
			clear(s.debug.decoded)
		}
	}
	second := details(ps.Append(nil, c.pid(), []uint64{c.addrs[0]}))
	if strings.Join(first, "\n") != strings.Join(second, "\n") || len(first) != 3 {
		t.Errorf("first %q, then %q; want the same three frames", first, second)
	}
}

// BenchmarkDebugInfo reads the debugging information of the test program.
func BenchmarkDebugInfo(b *testing.B) {
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		b.Fatal(err)
	}
	m, err := openImage(bytes.NewReader(data), int64(len(data)), "a")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := m.debugInfo(); err != nil {
		b.Skip(err)
	}
	b.Run("index", func(b *testing.B) {
		for b.Loop() {
			if _, err := m.debugInfo(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("all units", func(b *testing.B) {
		for b.Loop() {
			d, err := m.debugInfo()
			if err != nil {
				b.Fatal(err)
			}
			var size int64
			for _, r := range d.ranges {
				_, n := d.unit(r.low)
				size += n
			}
			b.ReportMetric(float64(size), "B-held")
		}
	})
}

// FuzzDebugInfo reads malformed debugging information.
func FuzzDebugInfo(f *testing.F) {
	data, err := os.ReadFile(compile(f, "int g(int); static inline int h(int x) { return g(x) + 1; } int f(int x) { return h(x); }", "-g", "-O2", "-c"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := readDebugInfo(func() (*image, error) { return openImage(bytes.NewReader(data), int64(len(data)), "a") })
		if err != nil {
			return
		}
		for _, r := range d.ranges {
			if u, _ := d.unit(r.low); u != nil {
				u.appendFrames(nil, Frame{}, r.low, Detail{true, true})
			}
		}
	})
}
