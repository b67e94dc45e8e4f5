package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/test/kernels/plan"
)

// timeout is the timeout of one check, after which the test binary prints where it hangs. The
// faults of all tools take half of it.
const timeout = "20m"

// outputMax is the number of bytes of a test's output sent to the host. The console has all output.
const outputMax = 4000

// check runs the tests of the tool and sets the results.
func check(c *plan.Check) {
	start := time.Now()
	if err := runTests(c, ""); err != nil {
		c.Error = err.Error()
	}
	c.Seconds = time.Since(start).Seconds()
}

// repeatFailed repeats the failed tests once. Those that pass are reported as unsteady.
func repeatFailed(c *plan.Check) {
	if c.Error != "" || len(c.Failed) == 0 {
		return
	}
	second := *c
	second.Passed, second.Skipped, second.Failed = 0, nil, nil
	if err := runTests(&second, pattern(c.Failed)); err == nil {
		amend(c, &second)
	}
}

// amend marks failed tests as unsteady if all of them have passed when repeated.
func amend(c, second *plan.Check) {
	if !second.OK() {
		return
	}
	c.Unsteady, c.Failed = c.Failed, nil
	c.Passed += second.Passed
}

// lackRuns reports whether the output of each failed test says that the kernel skipped runs of the
// tool's programs. A test whose subtests failed has no output itself.
func lackRuns(failed []plan.Test) bool {
	notice, _, _ := strings.Cut(tooltest.SkippedRuns, "%d")
	return !slices.ContainsFunc(failed, func(t plan.Test) bool {
		isPart := func(o plan.Test) bool { return strings.HasPrefix(o.Name, t.Name+"/") }
		return !strings.Contains(t.Output, notice) && !slices.ContainsFunc(failed, isPart)
	})
}

// pattern returns a regular expression that matches the tests, each with all its subtests.
func pattern(tests []plan.Test) string {
	var names []string
	for _, t := range tests {
		name, _, _ := strings.Cut(t.Name, "/")
		names = append(names, name)
	}
	return "^(" + strings.Join(slices.Compact(names), "|") + ")$"
}

// runTests runs the tests that the pattern matches.
func runTests(c *plan.Check, pattern string) error {
	args := []string{"-t", "/test/" + c.Tool + ".test", "-test.v=test2json", "-test.timeout=" + timeout, "-test.run=" + pattern}
	if c.Short {
		args = append(args, "-test.short")
	}
	cmd := exec.Command("/test/test2json", args...)
	cmd.Dir = "/src/" + c.Tool
	cmd.Env = append(os.Environ(), "CORESCOPE_ARGS="+strings.Join(c.Args(), " "))
	cmd.Stderr = os.Stdout
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	fmt.Println("check:", c)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start tests: %w", err)
	}
	unfinished, readErr := read(c, out)
	err = cmd.Wait()
	switch {
	case readErr != nil:
		return fmt.Errorf("read tests' output: %w", readErr)
	case err != nil && len(c.Failed) == 0:
		return fmt.Errorf("run tests: %w: %s", err, unfinished)
	case err == nil && c.Passed == 0:
		return errors.New("no test passed")
	}
	return nil
}

// event is a line of test2json.
type event struct {
	Action, Test, Output string
	Key, Value           string // of an attribute
}

// read adds the tests to the check. It returns the output of unfinished tests and of the run
// itself.
func read(c *plan.Check, from io.Reader) (unfinished string, err error) {
	printed := map[string]string{}
	c.Attrs = map[string]string{}
	for in := json.NewDecoder(from); in.More(); {
		var e event
		if err := in.Decode(&e); err != nil {
			return "", err
		}
		fmt.Print(e.Output)
		if !isFrame(e.Output) {
			printed[e.Test] += e.Output
		}
		if e.Test == "" {
			continue
		}
		t := plan.Test{Name: e.Test, Output: end(printed[e.Test])}
		switch e.Action {
		case "attr":
			c.Attrs[e.Key] = e.Value
			continue
		case "pass":
			c.Passed++
		case "skip":
			c.Skipped = append(c.Skipped, t)
		case "fail":
			c.Failed = append(c.Failed, t)
		default:
			continue
		}
		delete(printed, e.Test)
	}
	return end(strings.Join(slices.Collect(maps.Values(printed)), "")), nil
}

// isFrame reports whether the line is one that go test prints for every test ("=== RUN", "---
// PASS").
func isFrame(line string) bool {
	line = strings.TrimLeft(line, " ")
	return strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ")
}

func end(s string) string {
	return strings.TrimSpace(s[max(0, len(s)-outputMax):])
}
