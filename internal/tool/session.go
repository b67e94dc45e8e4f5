package tool

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/value"
)

// Session is one run of a tool.
type Session struct {
	tool     *Tool
	common   common
	Env      *Env
	columns  []column.Column
	Objects  *probe.Objects
	PID      uint32              // --pid if it selects exactly one process, else 0
	own      bool                // the OS process executes only this run
	keep     system.Capabilities // needed after all hooks are attached
	standIns []StandIn
	rowNoun  string            // of Plan.RowNoun
	hints    map[string]string // of Plan.Hints
	Out      *output.Writer
	ErrOut   *Messages
	// Terminal is standard output. blocks is set if text output consists of tables.
	Terminal io.Writer
	blocks   bool
	clock    clock
	losses   losses
	stats    stats
	command  *command // of --exec, or nil
	started  func()   // called when all hooks are attached, or nil
	watch    func()   // watches for the end of the output's reader
	Missed   uint64   // events that the source knows to be missing from its rows: unobserved
	Events   uint64   // rows that passed the filters, or values of histograms that did
	Excluded uint64   // rows that --filter or the source excluded
	Shown    uint64   // rows or reports written
	begun    time.Time
	// Interval is the time between reports if the command line sets none, 0 for one report at the end.
	Interval time.Duration
	lists    bool        // rows follow immediately: text output has no "ready" line
	ids      []flags.IDs // of processes and threads in the command line
}

// Notify writes a message to standard error.
func (s *Session) Notify(err error) { fmt.Fprintf(s.ErrOut, "%s: %v\n", s.tool.Name, err) }

// Name is the tool's name.
func (s *Session) Name() string { return s.tool.Name }

// IsVerbose reports whether --verbose is set, HasNoHeader whether --no-header is set.
func (s *Session) IsVerbose() bool   { return s.common.Verbose }
func (s *Session) HasNoHeader() bool { return s.common.NoHeader }

// SetList declares that rows follow immediately, so that text output has no "ready" line.
func (s *Session) SetList() { s.lists = true }

// Wall converts boot time to wall time.
func (s *Session) Wall(t *value.Time) error { return s.clock.wall(t) }

// clock converts CLOCK_BOOTTIME to wall time. It measures the offset again every second, so
// that steps of the wall clock take effect.
type clock struct {
	offset int64
	next   uint64
}

func (c *clock) wall(t *value.Time) error {
	if uint64(*t) >= c.next {
		offset, err := system.BootOffset()
		if err != nil {
			return fmt.Errorf("read clocks: %w", err)
		}
		c.offset = offset
		c.next = uint64(*t) + uint64(time.Second)
	}
	*t += value.Time(c.offset)
	return nil
}

// losses counts lost events.
type losses struct {
	counts *probe.Counts
	// unfiltered counts rows for which --filter failed.
	unfiltered uint64
	reported   map[string]uint64 // by reason, as of the last report
	next       time.Time
}

// Wanted reports whether the row passes --filter. A row for which the filter fails, such as for
// args[5] of two arguments, is excluded and counted as lost.
func (s *Session) Wanted(c *Columns) bool {
	if c.filter == nil {
		return true
	}
	ok, err := c.filter.Match()
	if !ok {
		s.Excluded++
	}
	if err == nil {
		return ok
	}
	if s.losses.unfiltered++; s.losses.unfiltered == 1 {
		fmt.Fprintf(s.ErrOut, "%s: row excluded: %v\n", s.tool.Name, err)
	}
	return false
}

// lost returns the number of lost events by reason.
func (s *Session) lost() (map[string]uint64, error) {
	reasons, err := s.losses.counts.Read()
	if err != nil {
		return nil, err
	}
	missed, err := s.Objects.SkippedRuns()
	if err != nil {
		return nil, err
	}
	reasons["program_busy"] += missed
	reasons["unobserved"] += s.Objects.MissedCalls() + s.Missed
	if s.losses.unfiltered > 0 {
		reasons[reasonFilter] = s.losses.unfiltered
	}
	return reasons, nil
}

// Lost returns the number of events lost so far.
func (s *Session) Lost() (uint64, error) {
	reasons, err := s.lost()
	return sum(reasons), err
}

// ReportLost reports the events lost since the previous report, at most once a second.
func (s *Session) ReportLost() error {
	if now := time.Now(); now.Before(s.losses.next) {
		return nil
	} else {
		s.losses.next = now.Add(time.Second)
	}
	reasons, err := s.lost()
	if err != nil {
		return err
	}
	fresh := map[string]uint64{}
	for name, n := range reasons {
		if d := n - s.losses.reported[name]; d > 0 {
			fresh[name] = d
		}
	}
	s.losses.reported = reasons
	if len(fresh) == 0 {
		return nil
	}
	return s.Out.Lost(output.Lost{Time: time.Now(), Lost: sum(fresh), Reasons: fresh})
}

func sum(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// summary writes the summary of the run and returns the number of lost events.
func (s *Session) summary() (lost uint64, err error) {
	defer func() { s.reportNoRows(lost) }()
	reasons, err := s.lost()
	if err != nil {
		return 0, err
	}
	counters, err := s.Objects.Counts("counters").Read()
	if err != nil {
		return 0, err
	}
	for _, name := range slices.Sorted(maps.Keys(s.hints)) {
		if n := counters[name]; n > 0 {
			s.Notify(fmt.Errorf("%s %d: %s", name, n, s.hints[name]))
		}
	}
	for _, pair := range s.standIns {
		if s.Objects.Has(pair.Hook) {
			maps.DeleteFunc(counters, func(name string, _ uint64) bool { return slices.Contains(pair.Lacks, name) })
		}
	}
	end := output.Summary{
		Time: time.Now(), Events: s.Events,
		Lost: sum(reasons), Reasons: reasons, Counters: counters,
	}
	if !s.common.Stats {
		return end.Lost, s.Out.Summary(end)
	}
	cost, err := s.stats.report(s.Objects)
	if err != nil {
		return 0, err
	}
	end.Stats = cost
	if err := s.Out.Summary(end); err != nil || s.Out.Format() == output.JSON {
		return end.Lost, err
	}
	return end.Lost, cost.write(s.ErrOut)
}

// stats measures the CPU time of the programs and of this process.
type stats struct {
	enabled io.Closer
	start   time.Time
	cpu     time.Duration
}

func (st *stats) begin() error {
	closer, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("measure run time: %w", probe.Classify(err))
	}
	st.enabled, st.start, st.cpu = closer, time.Now(), system.ProcessCPU()
	return nil
}

func (st *stats) close() {
	if st.enabled != nil {
		st.enabled.Close()
	}
}

// Stats is the cost of a run.
type Stats struct {
	Seconds  float64              `json:"seconds" help:"duration of the measurement"`
	Programs []probe.ProgramStats `json:"programs"`
	UserCPU  float64              `json:"user_cpu" help:"share of one CPU used by this process, in user and kernel mode"`
}

func (st *stats) report(o *probe.Objects) (*Stats, error) {
	span := time.Since(st.start)
	programs, err := o.Stats(span)
	if err != nil {
		return nil, err
	}
	return &Stats{
		Seconds: span.Seconds(), Programs: programs,
		UserCPU: float64(system.ProcessCPU()-st.cpu) / float64(span),
	}, nil
}

// write writes the cost as a table, with this process last.
func (c *Stats) write(w io.Writer) error {
	rows := append(c.Programs, probe.ProgramStats{Program: "user space", CPU: c.UserCPU})
	return WriteTable(w, []string{"PROGRAM", "RUNS", "NS/RUN", "CPU%"}, rows, func(p probe.ProgramStats) []string {
		return []string{
			p.Program, strconv.FormatUint(p.Runs, 10),
			strconv.FormatFloat(p.NsARun, 'f', 0, 64), strconv.FormatFloat(100*p.CPU, 'f', 2, 64),
		}
	})
}

// Prepare loads and attaches iterator programs, which requires more capabilities than running them.
func (s *Session) Prepare(programs []Iterator) error {
	for _, it := range programs {
		if err := s.Objects.Prepare(it); err != nil {
			return err
		}
	}
	return nil
}
