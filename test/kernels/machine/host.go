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

// host is the serial port that the host listens to.
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
		return fmt.Errorf("read kernel's release: %w", err)
	}
	boot := plan.Message{Type: plan.Boot, Release: unix.ByteSliceToString(name.Release[:])}
	if err := h.port.Encode(boot); err != nil {
		return fmt.Errorf("tell host: %w", err)
	}
	for _, t := range p.Tools {
		if err := h.test(t, p.Short); err != nil {
			return err
		}
	}
	return h.port.Encode(plan.Message{Type: plan.End})
}

// test tells the host the tool's ways, and runs all checks of them.
func (h *host) test(t plan.Tool, short bool) error {
	ways, err := explain(t)
	m := plan.Message{Type: plan.Ways, Tool: t.Name, Ways: ways}
	if err != nil {
		m.Error = err.Error()
	}
	if err := h.port.Encode(m); err != nil {
		return fmt.Errorf("tell host: %w", err)
	}
	for _, c := range checks(t, ways, short) {
		if err := h.port.Encode(plan.Message{Type: plan.Start, Check: &c}); err != nil {
			return fmt.Errorf("tell host: %w", err)
		}
		check(&c)
		// An emulated machine may stand still for long, as the host has other work.
		if short || lackRuns(c.Failed) {
			again(&c)
		}
		if said := h.log.complaints(); said != "" && c.Error == "" {
			c.Error = "the kernel says: " + said
		}
		if err := h.port.Encode(plan.Message{Type: plan.Done, Check: &c}); err != nil {
			return fmt.Errorf("tell host: %w", err)
		}
	}
	return h.port.Encode(plan.Message{Type: plan.Tested, Tool: t.Name})
}

// explain loads the tool's modules and asks it for its ways, without options first.
func explain(t plan.Tool) ([]plan.Way, error) {
	if err := load(t.Modules); err != nil {
		return nil, err
	}
	if t.Whole {
		return nil, nil
	}
	var ways []plan.Way
	for _, options := range append([]string{""}, t.Explain...) {
		more, err := explainWith(t.Name, strings.Fields(t.Args+" "+options))
		if err != nil {
			return nil, err
		}
		for _, w := range more {
			if !slices.ContainsFunc(ways, w.Same) {
				ways = append(ways, w)
			}
		}
	}
	return ways, nil
}

func explainWith(tool string, options []string) ([]plan.Way, error) {
	cmd := exec.Command("/test/corescope", append([]string{tool, "--explain", "--output", "json"}, options...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("explain: %w: %s", err, &stderr)
	}
	var ways []plan.Way
	for in := json.NewDecoder(bytes.NewReader(out)); in.More(); {
		var w plan.Way
		if err := in.Decode(&w); err != nil {
			return nil, fmt.Errorf("read explanation: %w", err)
		}
		ways = append(ways, w)
	}
	return ways, nil
}

// checks are the tool as it comes, with all of its tests, and then each other way,
// one at a time; each of them by either buffer where the tool sends events. Tests that
// take long, or look at nothing that depends on the way, run once.
func checks(t plan.Tool, ways []plan.Way, short bool) []plan.Check {
	if short && len(ways) > 0 {
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
	if len(ways) > 0 || t.Whole {
		add(plan.Check{})
	}
	for _, w := range ways {
		if w.Works() && !w.Taken {
			add(plan.Check{Hook: w.Hook, Kind: w.Kind})
		}
	}
	return all
}
