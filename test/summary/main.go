// Command summary reads the output of go test -json. It prints the output of each failed test when
// the test ends. After the last test it prints the slowest tests and go test's closing line of each
// package. Failed packages come last, each after the names of its failed tests, so that the end of
// a truncated log contains them. With -failed FILE it writes the failed tests to FILE, one package
// and test per line. It exits with 1 if anything failed.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	failed := flag.String("failed", "", "write the failed tests to this `file`")
	slowest := flag.Int("slowest", 20, "list this many of the slowest tests")
	flag.Parse()
	s := newSummary()
	err := s.read(os.Stdin, os.Stdout)
	if err == nil && *failed != "" {
		err = os.WriteFile(*failed, []byte(s.failures()), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "summary:", err)
		os.Exit(1)
	}
	s.print(os.Stdout, *slowest)
	if len(s.closing) == 0 {
		fmt.Fprintln(os.Stderr, "summary: go test has tested no package")
		os.Exit(2)
	}
	if s.hasFailed {
		os.Exit(1)
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

// test is a test that has ended.
type test struct {
	pkg, name string
	seconds   float64
	failed    bool
}

// closing is the line that go test prints when it is done with a package.
type closing struct{ pkg, line string }

func (c *closing) failed() bool { return strings.HasPrefix(c.line, "FAIL") }

type summary struct {
	output    map[[2]string][]string // of tests and packages that have not ended
	tests     []test
	verdicts  map[string][]string // lines "--- FAIL: TestX (0.00s)" by package
	closing   []closing
	hasFailed bool
}

func newSummary() *summary {
	return &summary{output: map[[2]string][]string{}, verdicts: map[string][]string{}}
}

func (s *summary) read(from io.Reader, to io.Writer) error {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("read events: %w", err)
		}
		var e event
		if json.Unmarshal(line, &e) != nil || e.Action == "" {
			fmt.Fprintf(to, "%s", line) // printed by the go command itself
			continue
		}
		s.add(&e, to)
	}
}

func (s *summary) add(e *event, to io.Writer) {
	switch e.Action {
	case "build-output":
		fmt.Fprint(to, e.Output)
	case "build-fail":
		s.hasFailed = true
	case "output":
		s.addOutput(e)
	case "pass", "fail", "skip":
		s.end(e, to)
	}
}

func (s *summary) addOutput(e *event) {
	if e.Test == "" {
		for _, begin := range []string{"ok  \t", "FAIL\t", "?   \t", "---\t"} {
			if strings.HasPrefix(e.Output, begin) {
				s.closing = append(s.closing, closing{e.Package, e.Output})
				return
			}
		}
	} else if strings.HasPrefix(strings.TrimSpace(e.Output), "--- FAIL: ") {
		s.verdicts[e.Package] = append(s.verdicts[e.Package], e.Output)
	}
	key := [2]string{e.Package, e.Test}
	s.output[key] = append(s.output[key], e.Output)
}

func (s *summary) end(e *event, to io.Writer) {
	key := [2]string{e.Package, e.Test}
	if e.Action == "fail" {
		s.hasFailed = true
		fmt.Fprint(to, strings.Join(s.output[key], ""))
	}
	delete(s.output, key)
	if e.Test != "" && !strings.Contains(e.Test, "/") {
		s.tests = append(s.tests, test{e.Package, e.Test, e.Elapsed, e.Action == "fail"})
	}
	if e.Test == "" {
		fmt.Fprintf(os.Stderr, "%s: %s, %.1f s\n", e.Package, e.Action, e.Elapsed)
	}
}

// failures lists the failed tests. A package that failed for another reason, for example because
// it does not compile, has a line without a test.
func (s *summary) failures() string {
	var b strings.Builder
	hasTest := map[string]bool{}
	for _, t := range s.tests {
		if t.failed {
			fmt.Fprintf(&b, "%s %s\n", t.pkg, t.name)
			hasTest[t.pkg] = true
		}
	}
	for _, c := range s.closing {
		if c.failed() && !hasTest[c.pkg] {
			fmt.Fprintf(&b, "%s\n", c.pkg)
		}
	}
	return b.String()
}

func (s *summary) print(to io.Writer, slowest int) {
	slices.SortFunc(s.tests, func(a, b test) int { return cmp.Compare(b.seconds, a.seconds) })
	fmt.Fprintln(to, "slowest tests:")
	for _, t := range s.tests[:min(slowest, len(s.tests))] {
		_, name, _ := strings.Cut(t.pkg, "/corescope/corescope/")
		fmt.Fprintf(to, "%8.1f s  %s %s\n", t.seconds, name, t.name)
	}
	for _, c := range s.closing {
		if !c.failed() {
			fmt.Fprint(to, c.line)
		}
	}
	for _, c := range s.closing {
		if c.failed() {
			fmt.Fprint(to, strings.Join(s.verdicts[c.pkg], ""), c.line)
		}
	}
	if s.hasFailed {
		fmt.Fprintln(to, "FAIL")
	}
}
