// Package agent runs tools in one process and exports what they observe: metrics to Prometheus and to
// OpenTelemetry collectors, and events as log records.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/corescope/corescope/internal/metric"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/webconfig"
)

// Agent runs the tools of a configuration.
type Agent struct {
	// Tools are the tools that a configuration can name.
	Tools []*tool.Tool
	// Path is the file of the configuration; see ReadConfig.
	Path    string
	Version string
	// ErrOut receives messages, one per line.
	ErrOut io.Writer
	// MaxCPU, if it is not 0, takes the place of the limit in the configuration.
	MaxCPU Percent
	// Own is set if the process exists for the agent alone. The agent then drops capabilities that no tool
	// needs, and limits the memory of the process.
	Own bool

	host     *host
	config   *Config
	schedule schedule   // of measurements, or the usual one
	mutex    sync.Mutex // guards config and runners
	runners  []*runner
	reloads  *reloads
}

// reloads are the metrics about reloading.
type reloads struct {
	ok, at *metric.Gauge
	all    *metric.Counter
}

// Check reads a configuration and checks the arguments and columns of all tools. It loads nothing and
// needs no privileges.
func (a *Agent) Check() (*Config, error) {
	c, err := ReadConfig(a.Path)
	if err != nil {
		return nil, err
	}
	var errs []error
	if c.WebConfig != "" {
		errs = append(errs, webconfig.Check(c.WebConfig))
	}
	for i := range c.Tools {
		e := &c.Tools[i]
		if err := a.check(c, e); err != nil {
			errs = append(errs, e.at.errorf("%w", err))
		}
	}
	return c, invalid(errs...)
}

func (a *Agent) check(c *Config, e *Entry) error {
	o, err := e.outline(a.Tools)
	if err != nil {
		return err
	}
	if o.IsProfile && c.Pyroscope.URL == "" && !c.OTLP.Profiles {
		return fmt.Errorf("%s: its output is stacks, which need a server: set pyroscope.url or otlp.experimental_profiles", e.Tool)
	}
	return nil
}

// Run runs the tools until ctx is done. A value from reload makes it read the configuration again.
func (a *Agent) Run(ctx context.Context, reload <-chan os.Signal) error {
	c, err := a.Check()
	if err != nil {
		return err
	}
	store := metric.NewStore(metric.Options{TTL: time.Duration(c.Series.TTL), MaxSeries: c.Series.Limit})
	if err := a.setUp(store); err != nil {
		return err
	}
	exporter, err := a.newExporter(c, store)
	if err != nil {
		return err
	}
	a.host.logs, a.host.profiles = exporter.logs, exporter.profiles
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := a.serve(ctx, c, func() []metric.Snapshot {
		exporter.count()
		a.host.own.process.update()
		return store.Gather()
	}); err != nil {
		return err
	}
	if err := a.confine(); err != nil {
		return err
	}
	a.apply(ctx, c)
	a.reloads.set(nil)
	go a.limitCPU(ctx, cmp.Or(a.schedule, usualSchedule))
	exported := make(chan error, 1)
	exporting, endExport := context.WithCancel(context.WithoutCancel(ctx))
	defer endExport()
	go func() { exported <- exporter.run(exporting, c, store) }()
	for {
		select {
		case <-ctx.Done():
			a.stop()
			endExport()
			return <-exported
		case <-reload:
			err := a.reload(ctx)
			a.reloads.count(err)
			if err != nil {
				a.notify("the configuration was not reloaded, the previous one remains in use: %v", err)
			} else {
				a.notify("reloaded the configuration")
			}
		}
	}
}

func (a *Agent) confine() error {
	if !a.Own {
		return nil
	}
	_, err := system.Confine(tool.StreamNeeds(a.Tools))
	return err
}

func (a *Agent) setUp(store *metric.Store) error {
	own, err := newOwn(store)
	if err != nil {
		return err
	}
	a.host = &host{
		tools: a.Tools, store: store, own: own, errOut: a.ErrOut, notify: a.notify,
		common: tool.NewCommon(func(err error) { a.notify("%v", err) }),
	}
	a.reloads, err = newReloads(store)
	return err
}

func newReloads(store *metric.Store) (*reloads, error) {
	ok, err := store.Gauge(metric.Description{
		Name: []string{"config", "last_reload_successful"}, Unit: "", Permanent: true,
		Help: "1 if the configuration was valid when it was last read, otherwise 0.",
	})
	if err != nil {
		return nil, err
	}
	at, err := store.Gauge(metric.Description{
		Name: []string{"config", "last_reload_success_timestamp"}, Unit: metric.Seconds, Permanent: true,
		Help: "Wall time when the configuration was last applied.",
	})
	if err != nil {
		return nil, err
	}
	all, err := store.Counter(metric.Description{
		Name: []string{"config", "reloads"}, Unit: "{reload}", Labels: []string{"result"}, Permanent: true,
		Help: "Times that the configuration was read again, by result: success, or failure if the previous one remained in use.",
	})
	if err != nil {
		return nil, err
	}
	all.Add(0, "success")
	all.Add(0, "failure")
	return &reloads{ok, at, all}, nil
}

func (r *reloads) set(err error) {
	if err != nil {
		r.ok.Set(0)
		return
	}
	r.ok.Set(1)
	r.at.Set(float64(time.Now().UnixNano()) / 1e9)
}

// count counts a reload by its result.
func (r *reloads) count(err error) {
	r.set(err)
	if err != nil {
		r.all.Add(1, "failure")
	} else {
		r.all.Add(1, "success")
	}
}

// notify writes a message.
func (a *Agent) notify(format string, args ...any) {
	fmt.Fprintf(a.ErrOut, "corescope-agent: "+format+"\n", args...)
}

// errRestart is returned for a change that needs a restart of the agent.
var errRestart = errors.New("this change needs a restart of the agent")

// reload reads the configuration and applies what differs.
func (a *Agent) reload(ctx context.Context) error {
	c, err := a.Check()
	if err != nil {
		return err
	}
	if err := c.isReloadable(a.config); err != nil {
		return err
	}
	a.apply(ctx, c)
	return nil
}

// isReloadable returns an error if settings differ that are only read at the start.
func (c *Config) isReloadable(old *Config) error {
	for _, s := range []struct {
		key       string
		different bool
	}{
		{"listen", c.Listen != old.Listen}, {"web_config", c.WebConfig != old.WebConfig}, {"series", c.Series != old.Series},
		{"otlp", c.OTLP != old.OTLP}, {"pyroscope", c.Pyroscope != old.Pyroscope},
	} {
		if s.different {
			return fmt.Errorf("%s: %w", s.key, errRestart)
		}
	}
	return nil
}

// apply starts the tools that are new in the configuration, after it has stopped those that are not part
// of it any more. Others continue.
func (a *Agent) apply(ctx context.Context, c *Config) {
	sameInterval := a.config != nil && a.config.Interval == c.Interval
	keeps := func(r *runner) bool {
		return sameInterval && slices.ContainsFunc(c.Tools, func(e Entry) bool { return e.isSame(&r.entry) })
	}
	var kept []*runner
	for _, r := range a.all() {
		if keeps(r) {
			kept = append(kept, r)
		} else {
			r.stop()
		}
	}
	for _, e := range c.Tools {
		if !slices.ContainsFunc(kept, func(r *runner) bool { return e.isSame(&r.entry) }) {
			kept = append(kept, a.host.start(ctx, e, time.Duration(c.Interval)))
		}
	}
	if a.Own {
		debug.SetMemoryLimit(int64(c.MaxMemory))
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.runners, a.config = kept, c
}

func (a *Agent) all() []*runner {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return slices.Clone(a.runners)
}

// stop stops all tools at the same time.
func (a *Agent) stop() {
	for _, r := range a.all() {
		r.cancel()
	}
	for _, r := range a.all() {
		r.stop()
	}
}

// Ready returns nil if all hooks of all tools are attached, else what is missing. A tool that max_cpu
// pauses is not missing: the agent does what its configuration says, and a rolling update must not wait.
func (a *Agent) Ready() error {
	var errs []error
	for _, r := range a.all() {
		err := r.status()
		var paused *pause
		if err != nil && !errors.As(err, &paused) {
			errs = append(errs, fmt.Errorf("%s: %w", r.entry.name(), err))
		}
	}
	return errors.Join(errs...)
}
