package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

// sample is the measurement of one run of a subject under a load.
type sample struct {
	usage
	load loadResult
	rows int
	// lost is the number of lost events that the tool reports. Only corescope does.
	lost   int
	hidden int // events that may belong to a process that this guest hides from BPF
	mem    memory
	memory uint64 // memory of BPF objects and buffers in the kernel
	stop   time.Duration
}

// run measures all figures of the benchmark.
func (b *benchmark) run(ctx context.Context, s *settings) ([]result, error) {
	m, err := newMeasurer(b, s)
	if err != nil {
		return nil, err
	}
	defer m.close()
	var all []result
	for _, rate := range append([]int{0}, b.rates...) {
		results, err := m.loaded(ctx, rate)
		if err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	if b.isSecondary {
		return all, nil
	}
	if b.rows > 0 {
		results, err := m.outputs(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	starts, err := m.starts(ctx)
	return append(all, starts), err
}

// scratch must not be on a tmpfs, which lacks O_DIRECT. Names below it must not contain the mark
// of a load, because execsnoop reports the arguments of the load process.
const scratch = "/var/tmp"

// measurer runs the subjects of a benchmark: corescope, and the peer if it is available. If
// not, note has the reason.
type measurer struct {
	*benchmark
	subjects []subject
	rounds   int
	dir      string
	note     string
}

func newMeasurer(b *benchmark, s *settings) (*measurer, error) {
	dir, err := os.MkdirTemp(scratch, "benchmark-")
	if err != nil {
		return nil, err
	}
	m := &measurer{benchmark: b, subjects: []subject{b.ours(s)}, rounds: b.rounds(s), dir: dir}
	if s.peers == "" && s.base == "" {
		m.note = "no peer installed"
	} else {
		m.subjects = append(m.subjects, b.peer(s))
	}
	return m, nil
}

func (m *measurer) close() { os.RemoveAll(m.dir) }

// dropPeer removes the peer from the subjects if err means that it is unavailable, and reports
// whether it did.
func (m *measurer) dropPeer(sub *subject, err error) bool {
	if !errors.Is(err, errUnavailable) || sub.name == ourName {
		return false
	}
	progress("%s: peer: %v", m.name(), err)
	m.subjects, m.note = m.subjects[:1], "peer "+err.Error()
	return true
}

// loaded runs the load with each subject in turn, and without a tool.
func (m *measurer) loaded(ctx context.Context, rate int) ([]result, error) {
	count := m.count
	if rate > 0 {
		count = 2 * rate
	}
	var alone []float64
	var samples [2][]sample
	for round := range m.rounds {
		progress("%s: %s, round %d of %d", m.name(), pacing(rate), round+1, m.rounds)
		for i, sub := range m.subjects {
			measured, err := m.measure(ctx, &sub, count, rate)
			if m.dropPeer(&sub, err) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sub.name, err)
			}
			samples[i] = append(samples[i], *measured)
		}
		l, err := m.runLoad(ctx, count, rate)
		if err != nil {
			return nil, err
		}
		alone = append(alone, l.Wall.Seconds())
	}
	return m.results(samples, alone, rate), nil
}

func pacing(rate int) string {
	if rate == 0 {
		return "unpaced"
	}
	return fmt.Sprintf("%d/s", rate)
}

// measure runs the load once with the subject.
func (m *measurer) measure(ctx context.Context, sub *subject, count, rate int) (*sample, error) {
	r, err := sub.start(ctx, m.dir)
	if err != nil {
		return nil, err
	}
	defer r.kill()
	if err := r.waitAttached(); err != nil {
		return nil, err
	}
	before, err := r.usage()
	if err != nil {
		return nil, err
	}
	var s sample
	hidden := tooltest.HiddenRuns()
	l, err := m.runLoad(ctx, count, rate)
	if err != nil {
		return nil, err
	}
	s.load, s.hidden = *l, tooltest.HiddenRuns()-hidden
	// Peers buffer rows until they exit unless they write to a terminal.
	if err := r.waitWritten(); err != nil {
		return nil, err
	}
	after, err := r.usage()
	if err != nil {
		return nil, err
	}
	s.usage = after.sub(before)
	if err := s.sizes(r); err != nil {
		return nil, err
	}
	if s.stop, err = r.stop(); err != nil {
		return nil, err
	}
	s.lost = r.lost()
	if m.rows != 0 {
		s.rows, err = r.rows(loads[m.load].prefix)
	}
	return &s, err
}

func (s *sample) sizes(r *running) (err error) {
	if s.mem, err = processMemory(r.pid()); err != nil {
		return err
	}
	o, err := kernelObjects(r.pid())
	if err != nil {
		return err
	}
	s.memory = o.memory + s.mem.perf
	return nil
}

func (m *measurer) runLoad(ctx context.Context, count, rate int) (*loadResult, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self, loadArg, m.load, m.dir, fmt.Sprint(count), fmt.Sprint(rate))
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run load: %w: %s", err, &stderr)
	}
	l := &loadResult{}
	if err := json.Unmarshal(out, l); err != nil {
		return nil, fmt.Errorf("decode result of load: %w", err)
	}
	return l, nil
}

// packageBytes returns the total size of the files of a Debian package installed in tree.
func packageBytes(tree, name string) (n int64, err error) {
	list, err := os.ReadFile(filepath.Join(tree, "var/lib/dpkg/info", name+".list"))
	if err != nil {
		return 0, fmt.Errorf("list files of %s: %w", name, err)
	}
	for line := range strings.Lines(string(list)) {
		info, err := os.Lstat(filepath.Join(tree, strings.TrimSpace(line)))
		if err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
	}
	return n, nil
}
