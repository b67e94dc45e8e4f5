// Command mutants measures which faults `corescope prove` detects. It copies the tree, changes the source of a
// tool in one place, builds a program with this tool only, and lets it prove the tool. A mutant is detected if
// the result is "contradicted".
//
//	sudo go run ./test/mutants [-list] [-every N] [-results FILE] [TOOL...]
//
// With -results each result is appended to a file, and mutants that have a result in it are not tested again: a
// run that was interrupted continues, and the score is that of all results.
//
// It needs clang-19 for the changes in BPF C.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	list := flag.Bool("list", false, "print the mutants, and exit")
	every := flag.Int("every", 1, "only every `N`th mutant")
	file := flag.String("results", "", "append the results to `FILE`, and skip the mutants that have one in it")
	flag.Parse()
	var chosen []mutant
	for i, m := range choose(flag.Args()) {
		if i%max(*every, 1) == 0 {
			chosen = append(chosen, m)
		}
	}
	if *list {
		for _, m := range chosen {
			fmt.Printf("%s: %s (%s)\n", m.tool, m.fault, m.file)
		}
		return nil
	}
	l, err := newLaboratory(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(l.dir)
	done, err := openResults(*file)
	if err != nil {
		return err
	}
	return l.all(ctx, chosen, done)
}

// choose returns the mutants of these tools, by default all.
func choose(tools []string) []mutant {
	return slices.DeleteFunc(mutants(), func(m mutant) bool { return len(tools) > 0 && !slices.Contains(tools, m.tool) })
}

// laboratory is a copy of the tree in which programs are changed.
type laboratory struct {
	root, dir string
	// base is the result of each tool without a change.
	base map[string]string
}

func newLaboratory(ctx context.Context) (*laboratory, error) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return nil, fmt.Errorf("find the tree: %w", err)
	}
	l := &laboratory{root: strings.TrimSpace(string(out)), base: map[string]string{}}
	if l.dir, err = os.MkdirTemp("/var/tmp", "corescope-mutants-"); err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	if err := l.sh(ctx, l.root, "git archive HEAD | tar -x -C "+l.dir); err != nil {
		return nil, fmt.Errorf("copy the tree: %w", err)
	}
	return l, l.simplify()
}

// simplify makes the build of BPF programs faster: for one architecture, with all types.
func (l *laboratory) simplify() error {
	return edit(filepath.Join(l.dir, "scripts/bpf2go.sh"), func(s string) (string, error) {
		s = strings.Replace(s, "-target amd64,arm64", "-target $(go env GOARCH)", 1)
		s = strings.Replace(s, `go -C "$root" run ./scripts/slimbtf`, ": ", 1)
		return strings.Replace(s, "tools/*)", "none)", 1), nil
	})
}

func edit(path string, change func(string) (string, error)) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read source: %w", err)
	}
	text, err := change(string(b))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write source: %w", err)
	}
	return nil
}

func (l *laboratory) sh(ctx context.Context, dir, command string) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, last(string(out), 400))
	}
	return nil
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }

// all tests the mutants, and prints the results and the score.
func (l *laboratory) all(ctx context.Context, chosen []mutant, done *results) error {
	var s score
	for _, m := range chosen {
		result := done.of(m)
		if result == "" {
			result = l.result(ctx, m)
			if ctx.Err() != nil {
				break
			}
			fmt.Printf("%s: %s: %s\n", m.tool, m.fault, result)
			if err := done.add(m, result); err != nil {
				return err
			}
		}
		s.add(result)
	}
	fmt.Println(s)
	return nil
}

// The beginnings of results that are not those of a proof of the mutant.
const (
	notDetected = "NOT DETECTED: "
	notBuilt    = "not built: "
	excluded    = "not provable here: "
)

// result tests a mutant, and returns its result in one line.
func (l *laboratory) result(ctx context.Context, m mutant) string {
	result, err := l.test(ctx, m)
	switch {
	case errors.Is(err, errNotProvable):
		result = excluded + result
	case err != nil:
		result = notBuilt + err.Error()
	case !strings.HasPrefix(result, "contradicted"):
		result = notDetected + result
	}
	return strings.Join(strings.Fields(result), " ")
}

// score counts results.
type score struct{ detected, missed, unbuilt, excluded int }

func (s *score) add(result string) {
	switch {
	case strings.HasPrefix(result, notDetected):
		s.missed++
	case strings.HasPrefix(result, notBuilt):
		s.unbuilt++
	case strings.HasPrefix(result, excluded):
		s.excluded++
	default:
		s.detected++
	}
}

func (s score) String() string {
	return fmt.Sprintf("%d of %d mutants detected; %d not built; %d of tools that are not provable here", s.detected, s.detected+s.missed, s.unbuilt, s.excluded)
}

// results are the results of mutants, in a file with a line for each: tool, fault, result.
type results struct {
	file  *os.File // or nil
	known map[string]string
}

func openResults(path string) (*results, error) {
	r := &results{known: map[string]string{}}
	if path == "" {
		return r, nil
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read results: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) == 3 {
			r.known[f[0]+"\t"+f[1]] = f[2]
		}
	}
	if r.file, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	return r, nil
}

func (r *results) of(m mutant) string { return r.known[m.tool+"\t"+m.fault] }

func (r *results) add(m mutant, result string) error {
	if r.file == nil {
		return nil
	}
	if _, err := fmt.Fprintf(r.file, "%s\t%s\t%s\n", m.tool, m.fault, result); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

var errNotProvable = errors.New("the unchanged tool is not proved here")

func (l *laboratory) test(ctx context.Context, m mutant) (string, error) {
	if l.base[m.tool] == "" {
		result, err := l.prove(ctx, m.tool)
		if err != nil {
			return "", err
		}
		l.base[m.tool] = result
	}
	if result := l.base[m.tool]; !strings.HasPrefix(result, "proved") {
		return result, errNotProvable
	}
	path := filepath.Join(l.dir, m.file)
	original, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read source: %w", err)
	}
	defer l.restore(ctx, m, path, original)
	if err := edit(path, m.apply); err != nil {
		return "", err
	}
	if m.isC() {
		if err := l.sh(ctx, l.dir, "go generate ./tools/"+m.tool); err != nil {
			return "", err
		}
	}
	return l.prove(ctx, m.tool)
}

// restore removes the change and the objects that were built with it.
func (l *laboratory) restore(ctx context.Context, m mutant, path string, original []byte) {
	err := os.WriteFile(path, original, 0o644)
	if m.isC() {
		err = errors.Join(err, l.sh(ctx, l.root, "git archive HEAD tools/"+m.tool+" | tar -x -C "+l.dir))
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "mutants: restore the source:", err)
	}
}

const program = `package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/corescope/corescope/internal/command"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools/NAME"
)

func main() {
	c := command.Command{Tools: []*tool.Tool{NAME.Tool}, Version: "mutant", Out: os.Stdout, Err: os.Stderr}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(c.Run(ctx, os.Args))
}
`

// prove builds the program with a tool, and returns the result of its proof with the columns that differ.
func (l *laboratory) prove(ctx context.Context, tool string) (string, error) {
	main := filepath.Join(l.dir, "cmd/mutant")
	if err := os.MkdirAll(main, 0o755); err != nil {
		return "", fmt.Errorf("create directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(main, "main.go"), []byte(strings.ReplaceAll(program, "NAME", tool)), 0o644); err != nil {
		return "", fmt.Errorf("write program: %w", err)
	}
	if err := l.sh(ctx, l.dir, "go build -buildvcs=false -ldflags '-s -w' -o mutant ./cmd/mutant"); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(l.dir, "mutant"), "prove", "--json", tool).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", fmt.Errorf("run the proof: %w", err)
	}
	return resultOf(out)
}

func resultOf(out []byte) (string, error) {
	var report struct {
		Tools []struct {
			Result, Reason string
			Columns        []struct{ Column, Result string }
		}
	}
	if err := json.Unmarshal(out, &report); err != nil || len(report.Tools) != 1 {
		return "", fmt.Errorf("read the report: %w: %s", err, last(string(out), 200))
	}
	t := report.Tools[0]
	text := t.Result + " " + t.Reason
	for _, c := range t.Columns {
		if c.Result == "contradicted" {
			text += c.Column + " "
		}
	}
	return strings.TrimSpace(text), nil
}
