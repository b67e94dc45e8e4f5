package ustat

import (
	"testing"

	"github.com/corescope/corescope/internal/languagetest"
)

// TestReal runs Java with the probes of methods and objects, and without.
func TestReal(t *testing.T) {
	const source = `class Stat {
		static class Created {}
		static void method() {}
		public static void main(String[] a) throws Exception {
			System.out.println("ready"); System.in.read();
			for (int i = 0; i < 3; i++) System.gc();
			for (int i = 0; i < 1000; i++) method();
			for (int i = 0; i < 5; i++) { Thread t = new Thread(Stat::method); t.start(); t.join(); }
		}
	}`
	for _, option := range []string{"-XX:+ExtendedDTraceProbes", "-XX:-ExtendedDTraceProbes"} {
		c := languagetest.Java(t, "Stat", source, "-XX:+UseSerialGC", option)
		res, _ := languagetest.Run(t, Tool, []string{"60"}, c[0], c[1:]...)
		if len(res.Rows) != 1 {
			t.Fatalf("%s: rows %v, want one", option, res.Rows)
		}
		r, isOn := res.Rows[0], option[4] == '+'
		if r.Num("collections") != 3 || r.Num("threads") < 5 || r.Has("methods") != isOn || r.Has("objects") != isOn || isOn && r.Num("methods") < 1005 {
			t.Errorf("%s: row %v, want 3 collections and 5 threads", option, r)
		}
	}
}
