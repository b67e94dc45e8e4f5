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

// outputs measures the share of reported events with output to a pipe that another process
// reads, and for corescope also as JSON.
func (m *measurer) outputs(ctx context.Context) ([]result, error) {
	pipe, err := m.reported(ctx, "events reported, unpaced, pipe", m.subjects, m.measurePipe)
	if err != nil {
		return nil, err
	}
	ours := m.subjects[0]
	ours.args = append(ours.args[:len(ours.args):len(ours.args)], "--output", "json")
	asJSON, err := m.reported(ctx, "events reported, unpaced, JSON", []subject{ours}, m.measureJSON)
	return []result{pipe, asJSON}, err
}

// reported measures a figure over all rounds. measure returns the sample of one round.
func (m *measurer) reported(
	ctx context.Context, figure string, subjects []subject, measure func(context.Context, *subject) (*sample, error),
) (result, error) {
	var samples [2][]sample
	for round := range m.rounds {
		progress("%s: %s, round %d of %d", m.name(), figure, round+1, m.rounds)
		for i := range subjects {
			s, err := measure(ctx, &subjects[i])
			if err != nil {
				return result{}, fmt.Errorf("%s: %w", subjects[i].name, err)
			}
			samples[i] = append(samples[i], *s)
		}
	}
	return m.reportedResult(figure, samples), nil
}

func (m *measurer) measureJSON(ctx context.Context, sub *subject) (*sample, error) {
	s, err := m.measure(ctx, sub, m.count, 0)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(m.dir + "/rows")
	if err != nil {
		return nil, err
	}
	s.lost, err = lostInJSON(b)
	return s, err
}

// lostInJSON returns the number of lost events in the summary, the last line.
func lostInJSON(b []byte) (int, error) {
	lines := bytes.Split(bytes.TrimSpace(b), []byte{'\n'})
	var summary struct {
		Type string
		Lost int
	}
	if err := json.Unmarshal(lines[len(lines)-1], &summary); err != nil || summary.Type != "summary" {
		return 0, fmt.Errorf("last line is not a summary: %.200s (%v)", lines[len(lines)-1], err)
	}
	return summary.Lost, nil
}

// measurePipe writes the rows to a pipe. Another process reads and counts them.
func (m *measurer) measurePipe(ctx context.Context, sub *subject) (*sample, error) {
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
	s, err := m.measureTo(ctx, sub, out)
	if err != nil {
		return nil, err
	}
	// The exit code only tells whether grep found a line.
	_ = reader.Wait()
	s.rows, err = strconv.Atoi(strings.TrimSpace(counted.String()))
	return s, err
}

func (m *measurer) measureTo(ctx context.Context, sub *subject, out *os.File) (*sample, error) {
	r, err := sub.startTo(ctx, out)
	if err != nil {
		return nil, err
	}
	defer r.kill()
	if err := r.waitAttached(); err != nil {
		return nil, err
	}
	l, err := m.runLoad(ctx, m.count, 0)
	if err != nil {
		return nil, err
	}
	// The reader gets the rest of the pipe once the tool has exited.
	if err := r.waitIdle(); err != nil {
		return nil, err
	}
	s := &sample{load: *l}
	if s.stop, err = r.stop(); err != nil {
		return nil, err
	}
	s.lost = r.lost()
	return s, nil
}
