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

// row is a row of the table.
type row struct {
	name, description string
	scores            []score // in the order of the subjects; empty if the program is unavailable
	note              string
}

// scratch is on a disk, because a separate case covers programs on a tmpfs.
const scratch = "/var/tmp"

// sampleSeconds is the duration of a measurement.
const sampleSeconds = 2

// measure runs the program once for each subject.
func (s *settings) measure(ctx context.Context, p *program) (r row, err error) {
	dir, err := os.MkdirTemp(scratch, "stacks-")
	if err != nil {
		return row{}, err
	}
	defer os.RemoveAll(dir)
	r = row{name: p.name, description: p.description}
	for i := range s.subjects {
		scored, err := s.subjects[i].measure(ctx, p, filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return row{}, fmt.Errorf("%s: %w", s.subjects[i].name, err)
		}
		r.scores = append(r.scores, scored)
	}
	return r, nil
}

// measure builds and runs the program and scores the stacks that the subject reports.
func (sub *subject) measure(ctx context.Context, p *program, dir string) (s score, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return score{}, err
	}
	b := &builder{ctx: ctx, dir: dir}
	pid := 0
	defer func() {
		if b.cleanup != nil {
			err = errors.Join(err, b.cleanup(pid))
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
	symbols := readSymbols(pid, b.twin)
	seconds, ready := sampleSeconds, func() {}
	if p.exits {
		seconds *= 2
		ready = func() { time.AfterFunc(sampleSeconds*time.Second, stop) }
	}
	samples, err := sub.samples(ctx, pid, seconds, p.options, ready)
	if err != nil && sub.isPeer && ctx.Err() == nil {
		progress("%s: %s: %v", p.name, sub.name, err)
		return score{Failed: true}, nil
	}
	if err != nil {
		return score{}, err
	}
	return newJudge(p, symbols.functionAt).score(samples), nil
}

func (s *subject) samples(
	ctx context.Context, pid, seconds int, options []string, ready func(),
) ([]sample, error) {
	out, err := s.output(ctx, pid, seconds, options, ready)
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
		return nil, fmt.Errorf("start %s: output %q: %w: %s", b.args[0], line, err, &stderr)
	}
	return cmd, nil
}

// symbolTable maps addresses of a process to functions.
type symbolTable struct {
	bias    uint64 // difference of addresses in memory and in the file
	symbols []elf.Symbol
}

// readSymbols reads the symbols of the twin of a program. The table is empty if there are none.
func readSymbols(pid int, twin string) *symbolTable {
	p := &symbolTable{}
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
		if strings.Contains(line, "/prog") { // the first mapping starts at file offset 0
			start, _, _ := strings.Cut(line, "-")
			p.bias, _ = strconv.ParseUint(start, 16, 64)
			break
		}
	}
	return p
}

// functionAt returns the function at an address, or "".
func (p *symbolTable) functionAt(addr uint64) string {
	for _, s := range p.symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && addr-p.bias-s.Value < s.Size {
			return s.Name
		}
	}
	return ""
}
