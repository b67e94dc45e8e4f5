package uflow

import (
	"slices"
	"testing"

	"github.com/corescope/corescope/internal/languagetest"
)

// TestReal shows the calls of programs in real runtimes in their order.
func TestReal(t *testing.T) {
	for language, command := range map[string]func(t *testing.T) []string{
		"java": func(t *testing.T) []string {
			return languagetest.Java(t, "Flow", `class Flow {
				static void flowInner() {}
				static void flowOuter() { flowInner(); flowInner(); }
				public static void main(String[] a) throws Exception { System.out.println("ready"); System.in.read(); flowOuter(); }
			}`, "-XX:+ExtendedDTraceProbes")
		},
		"python3.9": func(t *testing.T) []string {
			return languagetest.Real(t, "python3.9", "-c", `class Flow: pass
def flowInner(): pass
def flowOuter(): flowInner(); flowInner()
print("ready", flush=True); input()
flowOuter()`)
		},
		"php": func(t *testing.T) []string {
			return languagetest.Real(t, "php", "-n", "-r", `function flowInner() {} function flowOuter() { flowInner(); flowInner(); }
echo "ready\n"; fgets(STDIN); flowOuter();`)
		},
	} {
		t.Run(language, func(t *testing.T) {
			c := command(t)
			res, _ := languagetest.Run(t, Tool, []string{"-M", "flow"}, c[0], c[1:]...)
			class := map[string]string{"java": "Flow.", "python3.9": "<string>."}[language]
			in, out := class+"flowInner 1", class+"flowOuter 0"
			want := []string{"-> " + out, "  -> " + in, "  <- " + in, "  -> " + in, "  <- " + in, "<- " + out}
			if got := flows(res); !slices.Equal(got, want) {
				t.Errorf("flow %q, want %q", got, want)
			}
		})
	}
}
