package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/test/kernels/plan"
)

// host is the serial port to the host.
type host struct {
	port *json.Encoder
	log  *kernelLog
}

func openHost() (*host, error) {
	path, err := bootParam("results")
	if err != nil {
		return nil, err
	}
	port, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open port to the host: %w", err)
	}
	log, err := openKernelLog()
	if err != nil {
		return nil, err
	}
	return &host{json.NewEncoder(port), log}, nil
}

func (h *host) run(p *plan.Plan) error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("read kernel release: %w", err)
	}
	boot := plan.Message{Type: plan.Boot, Release: unix.ByteSliceToString(name.Release[:])}
	if err := h.port.Encode(boot); err != nil {
		return fmt.Errorf("send to host: %w", err)
	}
	for _, t := range p.Tools {
		if err := h.test(t, p.Short); err != nil {
			return err
		}
	}
	return h.port.Encode(plan.Message{Type: plan.End})
}

// test sends the attach types of the tool to the host, and runs the checks of them.
func (h *host) test(t plan.Tool, short bool) error {
	variants, err := explain(t)
	m := plan.Message{Type: plan.Explained, Tool: t.Name, Variants: variants}
	if err != nil {
		m.Error = err.Error()
	}
	if err := h.port.Encode(m); err != nil {
		return fmt.Errorf("send to host: %w", err)
	}
	var all []plan.Check
	if err == nil {
		all = checks(t, variants, short)
	}
	for _, c := range all {
		if err := h.port.Encode(plan.Message{Type: plan.Start, Check: &c}); err != nil {
			return fmt.Errorf("send to host: %w", err)
		}
		check(&c)
		// An emulated machine can make no progress for a long time if the host is busy.
		if short || lackRuns(c.Failed) {
			repeatFailed(&c)
		}
		if logged := h.log.complaints(); logged != "" && c.Error == "" {
			c.Error = "kernel log: " + logged
		}
		if err := h.port.Encode(plan.Message{Type: plan.Done, Check: &c}); err != nil {
			return fmt.Errorf("send to host: %w", err)
		}
	}
	return h.port.Encode(plan.Message{Type: plan.Tested, Tool: t.Name})
}

// explain loads the tool's modules and returns its attach types: first without options, then with
// those of Tool.Explain.
func explain(t plan.Tool) ([]plan.Variant, error) {
	if err := load(t.Modules); err != nil {
		return nil, err
	}
	if t.Whole {
		return nil, nil
	}
	var variants []plan.Variant
	for _, options := range append([]string{""}, t.Explain...) {
		more, err := explainWith(t.Name, strings.Fields(t.Args+" "+options))
		if err != nil {
			return nil, err
		}
		for _, w := range more {
			if !slices.ContainsFunc(variants, w.Same) {
				variants = append(variants, w)
			}
		}
	}
	return variants, nil
}

func explainWith(tool string, options []string) ([]plan.Variant, error) {
	cmd := exec.Command("/test/corescope", append([]string{tool, "--explain", "--output", "json"}, options...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("explain: %w: %s", err, &stderr)
	}
	var variants []plan.Variant
	for in := json.NewDecoder(bytes.NewReader(out)); in.More(); {
		var v plan.Variant
		if err := in.Decode(&v); err != nil {
			return nil, fmt.Errorf("read explanation: %w", err)
		}
		variants = append(variants, v)
	}
	return variants, nil
}

// checks returns the checks of a tool: one with the default attach types and all tests, and one for
// each other attach type. If the tool sends events, each is run with both types of buffer. Tests
// that are slow or do not depend on the attach type run once. A tool without programs has the first
// check only.
func checks(t plan.Tool, variants []plan.Variant, short bool) []plan.Check {
	if short && !t.Whole {
		return []plan.Check{{Tool: t.Name, Short: true}}
	}
	var all []plan.Check
	add := func(c plan.Check) {
		c.Tool, c.Short = t.Name, t.Whole || len(all) > 0
		all = append(all, c)
		if t.Events {
			c.Perf, c.Short = true, true
			all = append(all, c)
		}
	}
	add(plan.Check{})
	for _, w := range variants {
		if w.Works() && !w.Taken {
			add(plan.Check{Hook: w.Hook, Kind: w.Kind})
		}
	}
	return all
}
