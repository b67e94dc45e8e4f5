package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
)

// comparison is a tool with the reference that it is compared with.
type comparison struct {
	tool string
	// program is the observed program, reference the source of the reference numbers.
	program, reference string
	needs              []string // commands
	run                func(context.Context, *machine) ([]figure, error)
}

// figure is one quantity, measured by the tool and by the reference.
type figure struct {
	what            string
	ours, reference float64
	// slack is the largest difference that counts as correct, why the reason for it.
	slack float64
	why   string
}

func (f figure) isOutside() bool {
	return math.IsNaN(f.ours) || math.Abs(f.ours-f.reference) > f.slack
}

// result is the result of a comparison.
type result struct {
	comparison
	figures []figure
	err     error
}

func (r result) isOutside() bool {
	if r.err != nil {
		return !errors.Is(r.err, errMissing)
	}
	for _, f := range r.figures {
		if f.isOutside() {
			return true
		}
	}
	return false
}

// errMissing is returned if this machine lacks the reference.
var errMissing = errors.New("reference not available")

func (c comparison) result(ctx context.Context, m *machine) result {
	r := result{comparison: c}
	for _, name := range c.needs {
		if _, err := exec.LookPath(name); err != nil {
			r.err = fmt.Errorf("%w: %s is not installed", errMissing, name)
		}
	}
	if r.err == nil {
		r.figures, r.err = c.run(ctx, m)
	}
	r.report()
	return r
}

// report prints the result on standard error.
func (r result) report() {
	if r.err != nil {
		fmt.Fprintf(os.Stderr, "%-14s %s: %v\n", r.tool, r.reference, r.err)
	}
	for _, f := range r.figures {
		verdict := "ok"
		if f.isOutside() {
			verdict = fmt.Sprintf("OUTSIDE the bound of %s", number(f.slack))
		}
		fmt.Fprintf(os.Stderr, "%-14s %-40s %15s  %s %s: %s\n", r.tool, f.what, number(f.ours), r.reference, number(f.reference), verdict)
	}
}

func number(n float64) string {
	text := fmt.Sprintf("%.3f", n)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
