package main

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// row is one of the table.
type row struct {
	name, what string
	scores     []score // of the subjects; those that failed have none
	note       string
}

// scratch is on a disk: programs of a tmpfs of their own are one of the cases.
const scratch = "/var/tmp"

const lookSeconds = 2

// measure runs the program once for each subject.
func (s *settings) measure(ctx context.Context, p *program) (r row, err error) {
	dir, err := os.MkdirTemp(scratch, "stacks-")
	if err != nil {
		return row{}, err
	}
	defer os.RemoveAll(dir)
	r = row{name: p.name, what: p.what}
	for i := range s.subjects {
		one, err := s.subjects[i].look(ctx, p, filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return row{}, fmt.Errorf("%s: %w", s.subjects[i].name, err)
		}
		r.scores = append(r.scores, one)
	}
	return r, nil
}

// look builds and runs the program, and judges what the tool sees of it.
func (sub *subject) look(ctx context.Context, p *program, dir string) (s score, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return score{}, err
	}
	b := &builder{ctx: ctx, dir: dir}
	pid := 0
	defer func() {
		if b.ended != nil {
			err = errors.Join(err, b.ended(pid))
		}
	}()
	if err := p.build(b); err != nil {
		return score{}, err
	}
	cmd, err := b.start()
	if err != nil {
		return score{}, err
	}
	pid = cmd.Process.Pid
	stop := func() { _, _ = cmd.Process.Kill(), cmd.Wait() }
	defer stop()
	places := readPlaces(pid, b.twin)
	seconds, ready := lookSeconds, func() {}
	if p.exits {
		seconds *= 2
		ready = func() { time.AfterFunc(lookSeconds*time.Second, stop) }
	}
	samples, err := sub.samples(ctx, pid, seconds, p.options, ready)
	if err != nil && sub.isPeer && ctx.Err() == nil {
		progress("%s: %s: %v", p.name, sub.name, err)
		return score{Failed: true}, nil
	}
	if err != nil {
		return score{}, err
	}
	return newJudge(p, places.functionAt).score(samples), nil
}

func (s *subject) samples(ctx context.Context, pid, seconds int, more []string, ready func()) ([]sample, error) {
	out, err := s.output(ctx, pid, seconds, more, ready)
	if err != nil {
		return nil, err
	}
	return s.parse(out)
}

// start runs the program and returns when it is ready.
func (b *builder) start() (*exec.Cmd, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(b.ctx, b.args[0], b.args[1:]...)
	cmd.Dir, cmd.Stderr = b.dir, &stderr
	cmd.Env = append(os.Environ(), b.env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && b.started != nil {
		err = b.started(cmd.Process.Pid)
	}
	if err != nil {
		_, _ = cmd.Process.Kill(), cmd.Wait()
		return nil, fmt.Errorf("%s said %q: %w: %s", b.args[0], line, err, &stderr)
	}
	return cmd, nil
}

// places tell what is where in the memory of a program.
type places struct {
	bias    uint64 // from the file's addresses to those of memory
	symbols []elf.Symbol
}

// readPlaces reads the symbols of a twin of the program; none if it has none.
func readPlaces(pid int, twin string) *places {
	p := &places{}
	f, err := elf.Open(twin)
	if err != nil {
		return p
	}
	defer f.Close()
	p.symbols, _ = f.Symbols()
	if f.Type != elf.ET_DYN {
		return p
	}
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "/prog") { // the first mapping is of the file's beginning
			start, _, _ := strings.Cut(line, "-")
			p.bias, _ = strconv.ParseUint(start, 16, 64)
			break
		}
	}
	return p
}

// functionAt is the function that is at an address, "" if there is none.
func (p *places) functionAt(addr uint64) string {
	for _, s := range p.symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && addr-p.bias-s.Value < s.Size {
			return s.Name
		}
	}
	return ""
}
