package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// row is one JSON object of a tool's output.
type row map[string]any

func (r row) num(key string) float64 { n, _ := r[key].(float64); return n }
func (r row) str(key string) string  { s, _ := r[key].(string); return s }

// bytes returns the exact bytes of a string column.
func (r row) bytes(key string) []byte {
	if encoded, ok := r[key+"_base64"].(string); ok {
		b, _ := base64.StdEncoding.DecodeString(encoded)
		return b
	}
	return []byte(r.str(key))
}

// observed is the output of a tool.
type observed struct {
	rows    []row // events, table rows or histograms
	summary row
}

// where returns the rows whose column key has the value.
func (o *observed) where(key, value string) *observed {
	out := &observed{summary: o.summary}
	for _, r := range o.rows {
		if r.str(key) == value {
			out.rows = append(out.rows, r)
		}
	}
	return out
}

// sum returns the sum of a column.
func (o *observed) sum(key string) (n float64) {
	for _, r := range o.rows {
		n += r.num(key)
	}
	return n
}

// lost returns the number of lost events.
func (o *observed) lost() float64 { return o.summary.num("lost") }

// notSupported is the exit code of tools that the kernel does not support.
const notSupported = 4

// observe runs a tool, calls load once all hooks are attached, and interrupts the tool when load
// returns. If load is nil, the tool ends by itself.
func (m *machine) observe(ctx context.Context, load func() error, args ...string) (*observed, error) {
	cmd := exec.CommandContext(ctx, m.path("corescope"), append(args, "--output", "json")...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	out := &observed{}
	var loading sync.WaitGroup
	var loadErr error
	in := bufio.NewReader(stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var r row
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("decode output of %s: %w", args[0], err)
		}
		switch r.str("type") {
		case "ready":
			if load != nil {
				loading.Go(func() {
					loadErr = load()
					_ = cmd.Process.Signal(unix.SIGINT) // Wait reports a process that has failed
				})
			}
		case "summary":
			out.summary = r
		case "lost":
		default:
			out.rows = append(out.rows, r)
		}
	}
	loading.Wait()
	err = cmd.Wait()
	if cmd.ProcessState.ExitCode() == notSupported {
		return nil, fmt.Errorf("%w: %s", errMissing, bytes.TrimSpace(stderr.Bytes()))
	}
	if err != nil {
		return nil, fmt.Errorf("run corescope %s: %w: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	if loadErr != nil {
		return nil, loadErr
	}
	if out.summary == nil {
		return nil, fmt.Errorf("run corescope %s: no summary: %s", strings.Join(args, " "), stderr.Bytes())
	}
	return out, nil
}
