package uobjnew

import (
	"testing"

	"github.com/corescope/corescope/internal/languagetest"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestReal counts the objects that programs create in real runtimes.
func TestReal(t *testing.T) {
	for language, command := range map[string]func(*testing.T) []string{
		"java": func(t *testing.T) []string {
			return languagetest.Java(t, "New", `class New {
				static class Created { long a, b; }
				static Object[] kept = new Object[500];
				public static void main(String[] a) throws Exception {
					System.out.println("ready"); System.in.read();
					for (int i = 0; i < 500; i++) kept[i] = new Created();
				}
			}`, "-XX:+ExtendedDTraceProbes")
		},
		"ruby": func(t *testing.T) []string {
			return languagetest.Real(t, "ruby", "-e", `$stdout.sync = true
				module New; end
				class New::Created; end
				puts "ready"; gets; 500.times { New::Created.new }`)
		},
	} {
		t.Run(language, func(t *testing.T) {
			c := command(t)
			res, _ := languagetest.Run(t, Tool, nil, c[0], c[1:]...)
			name := map[string]string{"java": "New$Created", "ruby": "New::Created"}[language]
			rows := res.Where(func(r tooltest.Row) bool { return r.Str("object_type") == name })
			// The interpreter of JDK 17 passes no size.
			if len(rows) != 1 || rows[0].Num("count") != 500 || rows[0].Has("bytes") {
				t.Errorf("rows of %s: %v, want 500 objects without bytes", name, rows)
			}
		})
	}
}
