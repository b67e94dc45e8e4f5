// Package remote runs a tool on several hosts, through ssh or kubectl, and merges the output.
package remote

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/value"
)

// Transport runs programs on hosts.
type Transport interface {
	// prepare makes sure that the host has the program. errOut receives messages.
	prepare(ctx context.Context, host string, p *program, errOut io.Writer) (starter, error)
}

// starter returns a command that runs a tool on a host, with the words of its command line. It stops the
// tool when standard input ends, which is also so if the connection breaks.
type starter func(ctx context.Context, words []string) *exec.Cmd

// Verb is the verb of the program that runs a tool on a host: see [Serve].
const Verb = "on-host"

// Run is a run of a tool on several hosts.
type Run struct {
	Hosts     []string
	Transport Transport
	// Label is the title and the key of the column with the host, in lower case.
	Label   string
	Tool    string
	Args    []string
	Format  output.Format
	Version string // of this program
	Out     io.Writer
	ErrOut  io.Writer
}

// delay is the time that output waits for earlier output of another host.
const delay = 500 * time.Millisecond

// Do runs the tool on all hosts until it ends everywhere, and stops it there when ctx is done. A host that
// fails is reported, and the others continue. It returns the greatest exit code of a host, at least 1 if one
// failed, and an error if nothing can be run.
func (r *Run) Do(ctx context.Context) (int, error) {
	p, err := self(r.Version)
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	j := &join{run: r, stop: stop, merger: newMerger(len(r.Hosts), delay), width: len(r.Label)}
	for _, name := range r.Hosts {
		j.width = max(j.width, len(name))
	}
	codes := make([]int, len(r.Hosts))
	var hosts sync.WaitGroup
	for i, name := range r.Hosts {
		hosts.Go(func() {
			defer j.end(i)
			errOut := &prefixed{join: j, prefix: name + ": "}
			defer errOut.flush()
			code, err := r.onHost(ctx, name, p, errOut, func(line []byte) { j.add(i, line) })
			if err != nil {
				fmt.Fprintf(errOut, "%v\n", err)
				code = max(code, 1)
			}
			codes[i] = code
		})
	}
	all := make(chan bool)
	go func() {
		hosts.Wait()
		close(all)
	}()
	err = j.writeUntil(all)
	greatest := 0
	for _, code := range codes {
		greatest = max(greatest, code)
	}
	return greatest, err
}

// onHost runs the tool on one host and passes its lines on.
func (r *Run) onHost(ctx context.Context, host string, p *program, errOut io.Writer, line func([]byte)) (int, error) {
	start, err := r.Transport.prepare(ctx, host, p, errOut)
	if err != nil {
		return 0, err
	}
	// The context only closes standard input, which ends the tool.
	cmd := start(context.WithoutCancel(ctx), append([]string{r.Tool}, r.Args...))
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	defer context.AfterFunc(ctx, func() { in.Close() })()
	code, hasEnded := readLines(out, line)
	if err := cmd.Wait(); !hasEnded {
		return 0, fmt.Errorf("the connection ended before the tool, rows can be missing: %s: %w", filepath.Base(cmd.Path), err)
	}
	return code, nil
}

// readLines passes lines on until the mark of the exit code, which it returns.
func readLines(out io.Reader, line func([]byte)) (code int, hasEnded bool) {
	for lines := bufio.NewReader(out); ; {
		text, err := lines.ReadBytes('\n')
		if mark, ok := bytes.CutPrefix(text, []byte(output.ExitMark)); ok {
			if code, err := strconv.Atoi(string(bytes.TrimSpace(mark))); err == nil {
				return code, true
			}
		}
		if len(text) > 0 {
			line(text)
		}
		if err != nil {
			return 0, false
		}
	}
}

// Serve runs a tool for a Run on another host: run receives a context that ends with standard input, and
// returns the exit code, which Serve writes to out. A tool that starts commands gives them no input.
func Serve(ctx context.Context, out io.Writer, run func(context.Context) int) int {
	in := os.Stdin
	if null, err := os.Open(os.DevNull); err == nil {
		os.Stdin = null
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in) // an error also ends the run
		stop()
	}()
	os.Setenv(output.StampsVariable, "1")
	code := run(ctx)
	fmt.Fprintf(out, "%s%d\n", output.ExitMark, code)
	return code
}

// join writes the output of all hosts.
type join struct {
	run   *Run
	width int // of the column of hosts

	mutex     sync.Mutex
	merger    *merger
	hasHeader bool
	err       error  // of writing
	stop      func() // stops all hosts
}

// add adds a line of a host.
func (j *join) add(host int, line []byte) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	name := j.run.Hosts[host]
	if j.run.Format == output.JSON {
		text, t := appendJSON(nil, line, j.run.Label, name)
		j.merger.add(unit{host, t, time.Now(), text})
		return
	}
	if bytes.HasPrefix(line, []byte(output.HeaderMark)) {
		j.header(bytes.TrimPrefix(line, []byte(output.HeaderMark)))
		return
	}
	t, text := splitStamp(line)
	j.merger.add(unit{host, t, time.Now(), j.appendHost(nil, name, text)})
}

// header writes the line of column names, once.
func (j *join) header(line []byte) {
	if !j.hasHeader {
		j.hasHeader = true
		name := j.run.Label
		if j.run.Format == output.Text {
			name = strings.ToUpper(name)
		}
		j.write(j.appendHost(nil, name, line))
	}
}

// appendHost appends a line with the name of the host before it.
func (j *join) appendHost(b []byte, name string, line []byte) []byte {
	if j.run.Format == output.CSV {
		return append(append(append(b, name...), ','), line...)
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return append(b, line...)
	}
	return append(fmt.Appendf(b, "%-*s ", j.width, name), line...)
}

func (j *join) end(host int) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.merger.end(host)
}

// writeUntil writes what is due until all hosts have ended.
func (j *join) writeUntil(ended <-chan bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			j.writeDue(time.Now().Add(time.Hour))
			return j.err
		case now := <-tick.C:
			j.writeDue(now)
		}
	}
}

func (j *join) writeDue(now time.Time) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	for _, u := range j.merger.due(now) {
		j.write(u.text)
	}
}

func (j *join) write(text []byte) {
	if j.err == nil {
		if _, j.err = j.run.Out.Write(text); j.err != nil {
			j.stop()
		}
	}
}

// prefixed writes lines to standard error with a prefix. Control characters are escaped.
type prefixed struct {
	join    *join
	prefix  string
	pending []byte
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.pending = append(p.pending, b...)
	for {
		line, rest, ok := bytes.Cut(p.pending, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		p.line(line)
		p.pending = append([]byte(nil), rest...)
	}
}

func (p *prefixed) line(line []byte) {
	p.join.mutex.Lock()
	defer p.join.mutex.Unlock()
	text := append([]byte(p.prefix), bytes.TrimRight(line, "\r")...)
	fmt.Fprintf(p.join.run.ErrOut, "%s\n", value.AppendVisible(nil, text))
}

// flush writes the rest.
func (p *prefixed) flush() {
	if len(p.pending) > 0 {
		p.line(p.pending)
		p.pending = nil
	}
}

// Names parses a list of hosts: names separated by commas.
func Names(list string) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		switch {
		case name == "" || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }):
			return nil, fmt.Errorf("%q is not the name of a host", name)
		case seen[name]:
			return nil, fmt.Errorf("host %s is listed twice", name)
		}
		seen[name] = true
		names = append(names, name)
	}
	return names, nil
}
