package prove

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// observation is a run of a tool.
type observation struct {
	cmd    *exec.Cmd
	errOut bytes.Buffer
	ready  chan struct{} // closed when the tool observes, or ends
	done   chan struct{} // closed when the tool has ended
	isUp   bool

	rows []row
	lost losses // and what else can be missing
	// What the summary of the tool says: losses, number of rows or values, and, with --stats, the programs.
	reported losses
	count    int
	programs []Program
	ended    bool // the summary has been read
	failed   error
}

// slowest is the time after which a tool counts as hanging. Nothing is measured with it.
const slowest = time.Minute

// observe starts a tool and waits until all its hooks are attached.
func observe(ctx context.Context, program string, args []string) (*observation, error) {
	o := &observation{ready: make(chan struct{}), done: make(chan struct{})}
	o.cmd = exec.CommandContext(ctx, program, args...)
	// A SIGINT of the terminal must stop prove only, and the tool must not survive it.
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	o.cmd.Cancel = func() error { return o.cmd.Process.Signal(syscall.SIGINT) }
	o.cmd.WaitDelay = slowest
	o.cmd.Stderr = &o.errOut
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("create pipe: %w", err)
	}
	if err := o.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the tool: %w", err)
	}
	go o.read(out)
	select {
	case <-o.ready:
	case <-time.After(slowest):
		o.kill()
		return nil, fmt.Errorf("the tool did not get ready within %v", slowest)
	}
	if !o.isUp {
		<-o.done
		return nil, o.failure()
	}
	return o, nil
}

// failure returns the error of a tool that ended by itself.
func (o *observation) failure() error {
	message := strings.TrimSpace(o.errOut.String())
	if i := strings.LastIndex(message, "\n"); i >= 0 {
		message = message[i+1:]
	}
	code := o.cmd.ProcessState.ExitCode()
	err := fmt.Errorf("%w: %s (exit code %d)", errNotRunning, message, code)
	if code == exitNotPermitted {
		return &deniedError{err}
	}
	return err
}

var errNotRunning = errors.New("the tool does not run")

// exitNotPermitted is the exit code of tools that lack privileges.
const exitNotPermitted = 3

// deniedError is an error because of missing privileges.
type deniedError struct{ error }

func (e *deniedError) Unwrap() error { return e.error }

func (o *observation) kill() {
	_ = o.cmd.Process.Kill()
	<-o.done
}

// stop ends the tool and waits for its rows.
func (o *observation) stop() error {
	_ = o.cmd.Process.Signal(syscall.SIGINT)
	return o.wait()
}

// wait waits until the tool has ended by itself.
func (o *observation) wait() error {
	select {
	case <-o.done:
	case <-time.After(slowest):
		o.kill()
		return fmt.Errorf("the tool did not end within %v", slowest)
	}
	if o.failed != nil {
		return o.failed
	}
	if code := o.cmd.ProcessState.ExitCode(); code != 0 || !o.ended {
		return o.failure()
	}
	return nil
}

// read reads the output until the tool closes it, and waits for the end of the tool.
func (o *observation) read(r io.Reader) {
	in := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		if err := o.line(line); err != nil && o.failed == nil {
			o.failed = err
		}
	}
	_ = o.cmd.Wait()
	close(o.done)
	if !o.isUp {
		close(o.ready)
	}
}

func (o *observation) line(line []byte) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var r row
	if err := d.Decode(&r); err != nil {
		return fmt.Errorf("output of the tool is not JSON: %w: %.100q", err, line)
	}
	switch r["type"] {
	case "ready":
		o.isUp = true
		close(o.ready)
	case "event", "row", "histogram":
		if when, err := time.Parse(time.RFC3339Nano, fmt.Sprint(r["time"])); err == nil {
			r["time"] = json.Number(strconv.FormatInt(when.UnixNano(), 10))
		}
		o.rows = append(o.rows, r)
	case "summary":
		return o.summary(line)
	}
	return nil
}

func (o *observation) summary(line []byte) error {
	var s struct {
		Events  int
		Reasons losses
		Stats   struct{ Programs []Program }
	}
	if err := json.Unmarshal(line, &s); err != nil {
		return fmt.Errorf("read the summary of the tool: %w", err)
	}
	o.ended, o.count, o.reported, o.programs = true, s.Events, s.Reasons, s.Stats.Programs
	o.lost = losses{}
	maps.Copy(o.lost, s.Reasons)
	return nil
}
