package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func userCases() []comparison {
	return []comparison{
		{"funccount", clone, "strace -f", []string{"strace", "git"}, funccount},
		{"trace", clone, "strace -f", []string{"strace", "git"}, trace},
		{"stackcount", clone, "strace -f", []string{"strace", "git"}, stackcount},
		{"argdist", clone, "strace -f", []string{"strace", "git"}, argdist},
		{"gethostlatency", "getent ahosts", "number of runs", []string{"getent"}, gethostlatency},
		{"javagc", "java", "java -Xlog:gc", []string{"javac"}, javagc},
	}
}

// funccount compares calls of C library functions that make one system call each, which no other
// function of the library makes.
func funccount(ctx context.Context, m *machine) ([]figure, error) {
	names := []string{"mkdir", "rename", "unlink", "rmdir", "readlink", "fsync", "pipe", "chmod", "dup2"}
	out, calls, err := m.traced(ctx, names, "funccount", "-r", "c:^("+strings.Join(names, "|")+")$")
	if err != nil {
		return nil, err
	}
	var figures []figure
	for _, name := range names {
		isCalled := func(c call) bool { return c.name == name }
		if want := count(calls, isCalled); want > 0 {
			figures = append(figures, figure{"calls of " + name, out.where("func", name).sum("count"), want, 0, ""})
		}
	}
	return figures, nil
}

// trace compares the paths with which mkdir is called.
func trace(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, err := m.traced(ctx, []string{"mkdir"}, "trace", `c:mkdir "%s", arg1`)
	if err != nil {
		return nil, err
	}
	var ours, theirs []string
	for _, r := range out.rows {
		args, _ := r["args"].(map[string]any)
		ours = append(ours, row(args).str("arg1"))
	}
	for _, c := range calls {
		if quoted := strings.SplitN(c.args, `"`, 3); c.name == "mkdir" && len(quoted) == 3 {
			theirs = append(theirs, quoted[1])
		}
	}
	same := 0.0
	for i := range min(len(ours), len(theirs)) {
		if ours[i] == theirs[i] {
			same++
		}
	}
	return []figure{{"paths of mkdir, in order", same, float64(len(theirs)), 0, ""}}, nil
}

func stackcount(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, err := m.traced(ctx, []string{"mkdir"}, "stackcount", "c:mkdir")
	if err != nil {
		return nil, err
	}
	want := count(calls, func(c call) bool { return c.name == "mkdir" })
	return []figure{{"calls of mkdir, over all stacks", out.sum("count") + out.lost(), want, 0, ""}}, nil
}

func argdist(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, err := m.traced(ctx, []string{"mkdir"}, "argdist", "-i", "1h", "-C", "p:c:mkdir(char *path, u32 mode):u32:mode")
	if err != nil {
		return nil, err
	}
	want := count(calls, func(c call) bool { return c.name == "mkdir" && strings.HasSuffix(c.args, " 0777") })
	ours := 0.0
	for _, r := range out.rows {
		if args, _ := r["args"].(map[string]any); row(args).num("mode") == 0o777 {
			ours += r.num("count")
		}
	}
	return []figure{{"calls of mkdir with mode 0777", ours, want, 0, ""}}, nil
}

func gethostlatency(ctx context.Context, m *machine) ([]figure, error) {
	const runs = 20
	out, err := m.observe(ctx, func() error {
		for range runs {
			if _, err := output(ctx, "getent", "ahosts", "localhost"); err != nil {
				return err
			}
		}
		return nil
	}, "gethostlatency")
	if err != nil {
		return nil, err
	}
	return []figure{{"lookups", float64(len(out.where("comm", "getent").rows)) + out.lost(), runs, 0, ""}}, nil
}

const garbage = `
public class Garbage {
	static Object[] kept = new Object[1 << 12];
	public static void main(String[] args) throws Exception {
		System.in.read();
		for (int i = 0; i < 3000000; i++) kept[i & (kept.length - 1)] = new byte[512];
		for (int i = 0; i < 5; i++) System.gc();
	}
}
`

var gcLine = regexp.MustCompile(`GC\((\d+)\) Pause (Full|Young)`)

// javagc compares garbage collections with the log of the Java virtual machine.
func javagc(ctx context.Context, m *machine) ([]figure, error) {
	dir := m.path("java")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Garbage.java"), []byte(garbage), 0o644); err != nil {
		return nil, fmt.Errorf("write program: %w", err)
	}
	if _, err := output(ctx, "javac", "-d", dir, filepath.Join(dir, "Garbage.java")); err != nil {
		return nil, err
	}
	var figures []figure
	for _, collector := range []string{"Serial", "Parallel", "G1"} {
		log := filepath.Join(dir, collector+".log")
		h, err := hold(ctx, nil, "java", "-XX:+Use"+collector+"GC", "-Xmx64m", "-Xlog:gc:file="+log, "-cp", dir, "Garbage")
		if err != nil {
			return nil, err
		}
		out, err := m.observe(ctx, h.finish, "javagc", "--cgroup", h.cgroup)
		h.close()
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(log)
		if err != nil {
			return nil, fmt.Errorf("read log of java: %w", err)
		}
		var all, full float64
		for _, match := range gcLine.FindAllStringSubmatch(string(text), -1) {
			all++
			if match[2] == "Full" {
				full++
			}
		}
		ours, oursFull := 0.0, 0.0
		for _, r := range out.rows {
			if r.str("what") != "collection" && r.str("what") != "gc" {
				continue
			}
			ours++
			if r["full"] == true || r.num("full") != 0 {
				oursFull++
			}
		}
		figures = append(figures,
			figure{"collections, " + collector, ours + out.lost(), all, 0, ""},
			figure{"full collections, " + collector, oursFull, full, 0, ""})
	}
	return figures, nil
}
