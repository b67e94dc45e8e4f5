package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/metric"
	"github.com/corescope/corescope/internal/otlp"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/tool"
)

// outline describes the output of an entry.
type outline struct {
	*tool.Outline
	summary string
}

// stream returns a run of the entry.
func (e *Entry) stream(tools []*tool.Tool, interval time.Duration, errOut io.Writer) (*tool.Stream, error) {
	for _, t := range tools {
		if t = t.As(e.Tool); t != nil {
			return &tool.Stream{
				Tool: t, Args: e.Args, Columns: e.columns, Interval: interval, ErrOut: errOut,
			}, nil
		}
	}
	return nil, fmt.Errorf("%w: unknown tool %q (see corescope list)", flags.ErrUsage, e.Tool)
}

// outline checks the entry and describes its output. Nothing is loaded.
func (e *Entry) outline(tools []*tool.Tool) (*outline, error) {
	stream, err := e.stream(tools, 0, io.Discard)
	if err != nil {
		return nil, err
	}
	o, err := stream.Outline()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Tool, err)
	}
	switch {
	case o.IsProfile:
		return &outline{o, stream.Tool.Summary}, e.checkProfile()
	case o.Kind == output.KindHistogram:
		return &outline{o, stream.Tool.Summary}, e.checkHistogram()
	}
	return &outline{o, stream.Tool.Summary}, e.check(o.Columns)
}

// checkProfile refuses settings that have no effect on stacks.
func (e *Entry) checkProfile() error {
	if e.Export.Labels != nil || len(e.Export.Gauges) > 0 || e.wantsLogs() {
		return fmt.Errorf("%w: labels, gauges and logs cannot be set for tools whose output is stacks", flags.ErrUsage)
	}
	return nil
}

// checkHistogram refuses settings that have no effect on histograms.
func (e *Entry) checkHistogram() error {
	if e.Export.Labels != nil || len(e.Export.Gauges) > 0 || e.wantsLogs() {
		return fmt.Errorf("%w: labels, gauges and logs cannot be set for histograms: the arguments select what they are grouped by", flags.ErrUsage)
	}
	return nil
}

// The time between two attempts to start a tool.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// runner keeps one tool running.
type runner struct {
	entry  Entry
	cancel context.CancelFunc
	done   chan struct{}
	rows   atomic.Uint64 // delivered so far

	mutex  sync.Mutex
	state  error                   // nil if all hooks are attached
	stream *tool.Stream            // of the current run, or nil
	end    context.CancelCauseFunc // ends it
	sample uint32                  // one of so many events is counted; 0 is 1

	programs map[string]bool // with a metric
	removed  bool            // the metrics are removed
}

// errStarting is the state before all hooks are attached.
var errStarting = errors.New("hooks are being attached")

func (r *runner) setState(err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.state = err
}

// status returns nil if all hooks are attached, else the reason.
func (r *runner) status() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.state
}

// host is what runners share.
type host struct {
	tools    []*tool.Tool
	store    *metric.Store
	own      *own
	logs     *otlp.Logs // nil if no collector is configured
	profiles []profiles
	errOut   io.Writer
	common   *tool.Common
	notify   func(format string, args ...any)
}

// start starts a tool in the background.
func (h *host) start(ctx context.Context, e Entry, interval time.Duration) *runner {
	ctx, cancel := context.WithCancel(ctx)
	r := &runner{entry: e, cancel: cancel, done: make(chan struct{}), state: errStarting}
	go func() {
		defer close(r.done)
		h.own.up.Set(0, r.entry.name())
		h.own.paused.Set(0, r.entry.name())
		h.own.sampling.Set(1, r.entry.name())
		h.keep(ctx, r, interval)
		r.remove(h.own)
	}()
	return r
}

// stop stops the tool and waits until its hooks are detached.
func (r *runner) stop() {
	r.cancel()
	<-r.done
}

// keep runs the tool until the context is done. After an error it starts the tool again, later each time.
func (h *host) keep(ctx context.Context, r *runner, interval time.Duration) {
	for retry := firstRetry; ; {
		begun := time.Now()
		r.setState(errStarting)
		err := h.run(ctx, r, interval)
		if ctx.Err() != nil {
			return
		}
		h.own.up.Set(0, r.entry.name())
		wait := retry
		var pause *pause
		switch {
		case errors.As(err, &pause):
			wait = pause.length
			h.own.paused.Set(1, r.entry.name())
		case time.Since(begun) > lastRetry:
			wait, retry = firstRetry, firstRetry
			fallthrough
		default:
			h.own.failures.Add(1, r.entry.name())
			retry = min(2*retry, lastRetry)
		}
		r.setState(err)
		h.notify("%s: %v; next start in %s", r.entry.name(), err, wait)
		var panicked *tool.PanicError
		if errors.As(err, &panicked) {
			h.notify("%s: %s", r.entry.name(), panicked.Stack)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		h.own.paused.Set(0, r.entry.name())
	}
}

// errEnded is returned for a run that ends by itself without an error.
var errEnded = errors.New("the run ended")

// run runs the tool once. It returns the cause if the run was ended by one.
func (h *host) run(ctx context.Context, r *runner, interval time.Duration) error {
	o, err := r.entry.outline(h.tools)
	if err != nil {
		return err
	}
	stream, err := r.entry.stream(h.tools, interval, h.errOut)
	if err != nil {
		return err
	}
	s := &sink{entry: &r.entry, own: h.own, store: h.store, runner: r, profiles: h.profiles}
	if r.entry.wantsLogs() && h.logs != nil {
		s.recorder = &recorder{logs: h.logs}
	}
	if err := s.describe(o); err != nil {
		return err
	}
	stream.Sink, stream.Common = s, h.common
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := r.begin(stream, cancel); err != nil {
		return err
	}
	defer r.setRun(nil, nil)
	if err := stream.Run(ctx); err != nil {
		return err
	}
	return cmp.Or(context.Cause(ctx), errEnded)
}

// begin notes a run that begins. It counts as many events as the previous one.
func (r *runner) begin(stream *tool.Stream, end context.CancelCauseFunc) error {
	r.setRun(stream, end)
	return r.setSample(r.sampled())
}

// sampled returns N if the tool counts one of N events.
func (r *runner) sampled() uint32 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return max(1, r.sample)
}

// setRun notes the current run, or that there is none.
func (r *runner) setRun(stream *tool.Stream, end context.CancelCauseFunc) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.stream, r.end = stream, end
}
