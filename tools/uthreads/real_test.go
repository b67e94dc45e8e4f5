package uthreads

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/languagetest"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestReal compares with the names and native IDs of threads of Java.
func TestReal(t *testing.T) {
	c := languagetest.Java(t, "Threads", `class Threads {
		public static void main(String[] a) throws Exception {
			System.out.println("ready"); System.in.read();
			for (int i = 0; i < 5; i++) {
				Thread t = new Thread(() -> {
					try {
						String id = java.nio.file.Files.readSymbolicLink(java.nio.file.Path.of("/proc/thread-self")).getFileName().toString();
						System.out.println(Thread.currentThread().getName() + " " + id + " " + Thread.currentThread().getId());
					} catch (Exception e) { throw new RuntimeException(e); }
				}, "wörker\u001b" + i);
				t.start(); t.join();
			}
		}
	}`, "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-Dsun.stdout.encoding=UTF-8")
	res, lines := languagetest.Run(t, Tool, []string{"-l", "java"}, c[0], c[1:]...)
	for _, kind := range []string{"start", "stop"} {
		var got []string
		for _, r := range res.Where(func(r tooltest.Row) bool {
			return r.Str("kind") == kind && strings.HasPrefix(r.Str("description"), "wörker")
		}) {
			got = append(got, fmt.Sprintf("%s %.0f %.0f", r.Str("description"), r.Num("native_id"), r.Num("java_id")))
		}
		if len(lines) != 5 || !slices.Equal(got, lines) {
			t.Errorf("%s of %q, Java has %q: %v", kind, got, lines, res.Events)
		}
	}
}
