package ugc

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/languagetest"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestReal compares with the collections that runtimes count or log.
func TestReal(t *testing.T) {
	t.Run("java", func(t *testing.T) {
		c := languagetest.Java(t, "Garbage", `class Garbage {
			static byte[][] kept = new byte[500][];
			public static void main(String[] a) throws Exception {
				System.out.println("ready"); System.in.read();
				for (int i = 0; i < 10000; i++) kept[i % kept.length] = new byte[9000];
				for (int i = 0; i < 3; i++) System.gc();
			}
		}`, "-XX:+UseG1GC", "-Xmx24m", "-Xlog:gc")
		res, lines := languagetest.Run(t, Tool, nil, c[0], c[1:]...)
		pauses, full := 0, 0
		for _, line := range lines {
			if strings.Contains(line, "Pause ") {
				pauses++
			}
			if strings.Contains(line, "Pause Full (System.gc())") {
				full++
			}
		}
		whole := len(res.Where(func(r tooltest.Row) bool { return r.Str("description") == "GC of the whole heap" }))
		if full != 3 || pauses < 4 || len(res.Events) != pauses || whole < full {
			t.Errorf("%d collections, %d of the whole heap; Java logs %d pauses, %d of System.gc", len(res.Events), whole, pauses, full)
		}
	})
	t.Run("ruby", func(t *testing.T) {
		c := languagetest.Real(t, "ruby", "-e", `$stdout.sync = true
			puts "ready"; gets; before = GC.count
			5.times { GC.start }
			100000.times { "garbage" * 3 }
			puts GC.count - before; exit!(0)`)
		res, lines := languagetest.Run(t, Tool, nil, c[0], c[1:]...)
		marks := len(res.Where(func(r tooltest.Row) bool { return strings.Contains(r.Str("description"), "mark") }))
		if fmt.Sprint(lines) != fmt.Sprintf("[%d]", marks) || marks < 5 {
			t.Errorf("%d mark phases, Ruby counts %q", marks, lines)
		}
	})
	t.Run("node", func(t *testing.T) {
		c := languagetest.Real(t, "node", "--expose-gc", "-e", `
			process.stdin.once('data', () => {
				let entries = 0
				const o = new (require('perf_hooks').PerformanceObserver)(list => { entries += list.getEntries().length })
				o.observe({entryTypes: ['gc']})
				for (let i = 0; i < 5; i++) gc()
				setTimeout(() => { console.log(entries); process.exit() }, 100)
			})
			console.log('ready')`)
		res, lines := languagetest.Run(t, Tool, nil, c[0], c[1:]...)
		full := len(res.Where(func(r tooltest.Row) bool { return r.Str("description") == "GC full" }))
		entries, err := strconv.Atoi(strings.Join(lines, " "))
		if err != nil || entries < 5 || len(res.Events) < entries || full < 5 {
			t.Errorf("%d collections, %d of them full; Node counts %q, at least 5 full", len(res.Events), full, lines)
		}
	})
}
