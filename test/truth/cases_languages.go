package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

func languageCases() []comparison {
	return []comparison{
		{"ucalls", "java, php, python3.9", "counters in the program", nil, ucalls},
		{"uflow", "python3.9", "counter in the program", nil, uflow},
		{"ugc", "java, ruby", "java -Xlog:gc, GC.count of Ruby", nil, ugc},
		{"uobjnew", "java, ruby", "counters in the program", nil, uobjnew},
		{"ustat", "java", "java -Xlog:gc, counters in the program", nil, ustat},
		{"uthreads", "java", "counter in the program", nil, uthreads},
	}
}

// work is a program of each language. It calls leaf 1000 times and itself 10 levels deep, creates 500
// objects, collects garbage, starts threads, and writes what it has counted itself to the file out.
func work() map[string]string {
	return map[string]string{
		"work.php": `<?php
sleep(1); // the tool attaches when the program has begun
$n = 0; function leaf() { global $n; $n++; } function deep($i) { leaf(); if ($i) deep($i - 1); }
for ($i = 0; $i < 1000; $i++) leaf();
deep(10);
file_put_contents("/tmp/truth/out", "leaf $n\n");`,
		"work.rb": `startup = GC.count
sleep(1) # as above
$n = 0; $o = 0
class Created; def initialize; $o += 1; end; end
def leaf; $n += 1; end
def deep(i); leaf; deep(i - 1) if i > 0; end
TracePoint.new(:call, :return) {}.enable
1000.times { leaf }
deep(10)
500.times { Created.new }
5.times { GC.start }
200000.times { "garbage" * 3 }
File.write("/tmp/truth/out", "leaf #{$n}\ncreated #{$o}\ngc #{GC.count}\nstartup #{startup}\n")
exit!(0)`,
		"work.py": `
n = 0
def leaf():
    global n
    n += 1
def deep(i):
    leaf()
    if i: deep(i - 1)
for i in range(1000): leaf()
deep(10)
open("/tmp/truth/out", "w").write("leaf %d\n" % n)`,
		"Work.java": `import java.nio.file.*;
class Work {
	static int leaf, created, threads;
	static class Created { Created() { created++; } }
	static Object[] kept = new Object[1 << 11];
	static void leaf() { leaf++; }
	static void deep(int i) { leaf(); if (i > 0) deep(i - 1); }
	public static void main(String[] args) throws Exception {
		for (int i = 0; i < 1000; i++) leaf();
		deep(10);
		for (int i = 0; i < 500; i++) kept[i] = new Created();
		for (int i = 0; i < 40000; i++) kept[i & (kept.length - 1)] = new byte[4096];
		for (int i = 0; i < 3; i++) System.gc();
		for (int i = 0; i < 20; i++) { Thread t = new Thread(() -> threads++, "truth-" + i); t.start(); t.join(); }
		Files.writeString(Path.of("/tmp/truth/out"), "leaf " + leaf + "\ncreated " + created + "\nthreads " + threads + "\n");
	}
}`,
	}
}

// language runs the program of a language in the root file system of scripts/languages.sh while a tool
// observes it. It returns the tool's output and the numbers of the program.
func (m *machine) language(ctx context.Context, command string, args ...string) (*observed, map[string]float64, error) {
	path, err := output(ctx, filepath.Join(m.root, "scripts/languages.sh"), "--path")
	if err != nil {
		return nil, nil, err
	}
	root := strings.TrimSpace(path)
	dir := filepath.Join(root, "tmp/truth")
	if _, err := os.Stat(root); err != nil {
		return nil, nil, fmt.Errorf("%w: the runtimes are not installed (scripts/languages.sh installs them)", errMissing)
	}
	defer os.RemoveAll(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make directory: %w", err)
	}
	for name, text := range work() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, nil, fmt.Errorf("write program: %w", err)
		}
	}
	// Java needs /proc.
	const enter = `mount -t proc proc "$0/proc" && exec chroot "$0" "$@"`
	inside := func(command string) []string {
		return append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c", enter, root}, strings.Fields(command)...)
	}
	if compile := inside("javac -d /tmp/truth /tmp/truth/Work.java"); strings.HasPrefix(command, "java ") {
		if out, err := exec.CommandContext(ctx, compile[0], compile[1:]...).CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("compile: %w: %s", err, out)
		}
	}
	h, err := hold(ctx, nil, append([]string{"env", "USE_ZEND_DTRACE=1"}, inside(command)...)...)
	if err != nil {
		return nil, nil, err
	}
	defer h.close()
	out, err := m.observe(ctx, h.finish, append(args, "--cgroup", h.cgroup)...)
	if err != nil {
		return nil, nil, err
	}
	counts := map[string]float64{}
	text, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil {
		return nil, nil, fmt.Errorf("read numbers: %w", err)
	}
	for _, match := range regexp.MustCompile(`(?m)^(\w+) (\d+)$`).FindAllStringSubmatch(string(text), -1) {
		counts[match[1]], _ = strconv.ParseFloat(match[2], 64) // digits
	}
	if log, err := os.ReadFile(filepath.Join(dir, "gc.log")); err == nil {
		counts["gc"] = float64(strings.Count(string(log), "Pause "))
	}
	return out, counts, nil
}

const javaWork = "java -XX:+ExtendedDTraceProbes -XX:+UseG1GC -Xmx24m -Xlog:gc:file=/tmp/truth/gc.log -cp /tmp/truth Work"

func ucalls(ctx context.Context, m *machine) (figures []figure, err error) {
	for _, command := range []string{javaWork, "php -n /tmp/truth/work.php", "python3.9 /tmp/truth/work.py"} {
		for _, flag := range []string{"", "--latency"} {
			args := append([]string{"ucalls"}, strings.Fields(flag)...)
			out, counts, err := m.language(ctx, command, args...)
			if err != nil {
				return nil, err
			}
			name, _, _ := strings.Cut(command, " ")
			what := strings.TrimSpace("calls of leaf, " + name + " " + flag)
			figures = append(figures, figure{what, out.where("method", "leaf").sum("count") + out.lost(), counts["leaf"], 0, ""})
		}
	}
	return figures, nil
}

func uflow(ctx context.Context, m *machine) ([]figure, error) {
	out, counts, err := m.language(ctx, "python3.9 /tmp/truth/work.py", "uflow", "-M", "leaf")
	if err != nil {
		return nil, err
	}
	calls, returns := 0.0, 0.0
	for _, r := range out.rows {
		if r["is_return"] == true {
			returns++
		} else {
			calls++
		}
	}
	return []figure{{"calls of leaf", calls + out.lost(), counts["leaf"], 0, ""}, {"returns of leaf", returns + out.lost(), counts["leaf"], 0, ""}}, nil
}

func ugc(ctx context.Context, m *machine) ([]figure, error) {
	java, log, err := m.language(ctx, javaWork, "ugc")
	if err != nil {
		return nil, err
	}
	ruby, counts, err := m.language(ctx, "ruby /tmp/truth/work.rb", "ugc")
	if err != nil {
		return nil, err
	}
	return []figure{
		{"pauses of java, G1", float64(len(java.rows)) + java.lost(), log["gc"], 0, ""},
		{"mark phases of ruby", float64(len(ruby.where("description", "GC mark stage").rows)) + ruby.lost(), counts["gc"], counts["startup"], "collections while Ruby starts: the tool attaches when the program has begun"},
	}, nil
}

func uobjnew(ctx context.Context, m *machine) ([]figure, error) {
	java, ofJava, err := m.language(ctx, javaWork, "uobjnew", "-l", "java")
	if err != nil {
		return nil, err
	}
	ruby, ofRuby, err := m.language(ctx, "ruby /tmp/truth/work.rb", "uobjnew", "-l", "ruby")
	if err != nil {
		return nil, err
	}
	return []figure{
		{"objects of the class Work$Created, java", java.where("object_type", "Work$Created").sum("count") + java.lost(), ofJava["created"], 0, ""},
		{"objects of the class Created, ruby", ruby.where("object_type", "Created").sum("count") + ruby.lost(), ofRuby["created"], 0, ""},
	}, nil
}

func ustat(ctx context.Context, m *machine) ([]figure, error) {
	out, counts, err := m.language(ctx, javaWork, "ustat", "-l", "java", "1h")
	if err != nil {
		return nil, err
	}
	return []figure{{"collections", out.sum("collections") + out.lost(), counts["gc"], 0, ""}}, nil
}

func uthreads(ctx context.Context, m *machine) ([]figure, error) {
	out, counts, err := m.language(ctx, javaWork, "uthreads", "-l", "java")
	if err != nil {
		return nil, err
	}
	var figures []figure
	for _, kind := range []string{"start", "stop"} {
		n := out.lost()
		for _, r := range out.where("kind", kind).rows {
			if strings.HasPrefix(r.str("description"), "truth-") {
				n++
			}
		}
		figures = append(figures, figure{kind + " of threads that the program creates", n, counts["threads"], 0, ""})
	}
	return figures, nil
}
