package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// outputs measures how much is seen where rows do not go to a file as text: to a pipe
// that another process reads, and, of ours, to a file as JSON.
func (m *measurer) outputs(ctx context.Context) ([]result, error) {
	pipe, err := m.seen(ctx, "seen, unpaced, to a pipe", m.subjects, m.seenByReader)
	if err != nil {
		return nil, err
	}
	ours := m.subjects[0]
	ours.args = append(ours.args[:len(ours.args):len(ours.args)], "--output", "json")
	asJSON, err := m.seen(ctx, "seen, unpaced, as JSON", []subject{ours}, m.seenInFile)
	return []result{pipe, asJSON}, err
}

// seen makes a figure of what count says of each round.
func (m *measurer) seen(ctx context.Context, figure string, subjects []subject, count func(context.Context, *subject) (*sample, error)) (result, error) {
	var samples [2][]sample
	for round := range m.rounds {
		progress("%s: %s, round %d of %d", m.name(), figure, round+1, m.rounds)
		for i := range subjects {
			one, err := count(ctx, &subjects[i])
			if err != nil {
				return result{}, fmt.Errorf("%s: %w", subjects[i].name, err)
			}
			samples[i] = append(samples[i], *one)
		}
	}
	return m.seenResult(figure, samples), nil
}

func (m *measurer) seenInFile(ctx context.Context, sub *subject) (*sample, error) {
	one, err := m.measure(ctx, sub, m.count, 0)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(m.dir + "/rows")
	if err != nil {
		return nil, err
	}
	one.lost, err = lostInJSON(b)
	return one, err
}

// lostInJSON is what the summary says, which is the last line.
func lostInJSON(b []byte) (int, error) {
	lines := bytes.Split(bytes.TrimSpace(b), []byte{'\n'})
	var summary struct {
		Type string
		Lost int
	}
	if err := json.Unmarshal(lines[len(lines)-1], &summary); err != nil || summary.Type != "summary" {
		return 0, fmt.Errorf("last line is no summary: %.200s (%v)", lines[len(lines)-1], err)
	}
	return summary.Lost, nil
}

// seenByReader has another process read the rows and count them.
func (m *measurer) seenByReader(ctx context.Context, sub *subject) (*sample, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	var counted bytes.Buffer
	reader := exec.CommandContext(ctx, "grep", "-c", "-F", loads[m.load].prefix)
	reader.Stdin, reader.Stdout = in, &counted
	err = reader.Start()
	in.Close()
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("start reader: %w", err)
	}
	defer reader.Process.Kill()
	one, err := m.measureTo(ctx, sub, out)
	if err != nil {
		return nil, err
	}
	// grep's exit code tells whether there was a line.
	_ = reader.Wait()
	one.rows, err = strconv.Atoi(strings.TrimSpace(counted.String()))
	return one, err
}

func (m *measurer) measureTo(ctx context.Context, sub *subject, out *os.File) (*sample, error) {
	r, err := sub.startTo(ctx, out)
	if err != nil {
		return nil, err
	}
	defer r.kill()
	if err := r.settled(); err != nil {
		return nil, err
	}
	l, err := m.runLoad(ctx, m.count, 0)
	if err != nil {
		return nil, err
	}
	// The reader is behind by what the pipe holds, and has it when the tool has ended.
	if err := r.idle(); err != nil {
		return nil, err
	}
	one := &sample{load: *l}
	if one.stop, err = r.stop(); err != nil {
		return nil, err
	}
	one.lost = r.lost()
	return one, nil
}
