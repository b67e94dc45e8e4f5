package tool

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/value"
)

// session is one run of a tool.
type session struct {
	tool     *Tool
	common   common
	env      *Env
	columns  []column.Column
	objects  *probe.Objects
	pid      uint32              // the only process that is asked for, or 0
	own      bool                // the process is this run's own
	keep     system.Capabilities // that are used when all is attached
	standIns []StandIn
	out      *output.Writer
	errOut   *notes
	// terminal is where output goes, if it is a terminal; blocks is how text looks.
	terminal io.Writer
	blocks   bool
	clock    clock
	losses   losses
	stats    stats
	command  *command // that the run is of, or nil
	usualGC  int      // debug.SetGCPercent, once all is attached
	events   uint64   // that happened, as far as they were wanted
	shown    uint64   // rows or reports that were written
}

// clock turns the boot clock's times into wall time. The distance is measured
// again every second, so that a step of the wall clock shows.
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

// losses are what was lost so far, and what was said of it.
type losses struct {
	counts *probe.Counts
	// unfiltered are rows that the filter could not be computed for.
	unfiltered uint64
	said       map[string]uint64
	next       time.Time
}

// wanted tells whether the filter takes the row. One that it cannot be computed for, as
// with args[5] where there are two, is left out and counted.
func (s *session) wanted(c *columns) bool {
	if c.filter == nil {
		return true
	}
	ok, err := c.filter.Match()
	if err == nil {
		return ok
	}
	if s.losses.unfiltered++; s.losses.unfiltered == 1 {
		fmt.Fprintf(s.errOut, "%s: row left out: %v\n", s.tool.Name, err)
	}
	return false
}

// total reads all that was lost, by reason.
func (s *session) lost() (map[string]uint64, error) {
	reasons, err := s.losses.counts.Read()
	if err != nil {
		return nil, err
	}
	missed, err := s.objects.Missed()
	if err != nil {
		return nil, err
	}
	reasons["program_busy"] += missed
	if s.losses.unfiltered > 0 {
		reasons[reasonFilter] = s.losses.unfiltered
	}
	return reasons, nil
}

// sayLost tells what was lost since it last did, once a second at most.
func (s *session) sayLost() error {
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
		if d := n - s.losses.said[name]; d > 0 {
			fresh[name] = d
		}
	}
	s.losses.said = reasons
	if len(fresh) == 0 {
		return nil
	}
	return s.out.Lost(output.Lost{Time: time.Now(), Lost: sum(fresh), Reasons: fresh})
}

func sum(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// summary tells the end of it, and returns how much was lost.
func (s *session) summary() (lost uint64, err error) {
	reasons, err := s.lost()
	if err != nil {
		return 0, err
	}
	counters, err := s.objects.Counts("counters").Read()
	if err != nil {
		return 0, err
	}
	end := output.Summary{
		Time: time.Now(), Events: s.events,
		Lost: sum(reasons), Reasons: reasons, Counters: counters,
	}
	if !s.common.Stats {
		return end.Lost, s.out.Summary(end)
	}
	cost, err := s.stats.report(s.objects)
	if err != nil {
		return 0, err
	}
	end.Stats = cost
	if err := s.out.Summary(end); err != nil || s.out.Format() == output.JSON {
		return end.Lost, err
	}
	return end.Lost, cost.write(s.errOut)
}

// stats measures what the programs and this process cost.
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
	st.enabled, st.start, st.cpu = closer, time.Now(), processCPU()
	return nil
}

func (st *stats) close() {
	if st.enabled != nil {
		st.enabled.Close()
	}
}

// Stats is what a run has cost.
type Stats struct {
	Seconds  float64              `json:"seconds" help:"time that was measured"`
	Programs []probe.ProgramStats `json:"programs"`
	UserCPU  float64              `json:"user_cpu" help:"share of one CPU that the process took, in user and kernel mode"`
}

func (st *stats) report(o *probe.Objects) (*Stats, error) {
	span := time.Since(st.start)
	programs, err := o.Stats(span)
	if err != nil {
		return nil, err
	}
	return &Stats{
		Seconds: span.Seconds(), Programs: programs,
		UserCPU: float64(processCPU()-st.cpu) / float64(span),
	}, nil
}

// write writes the costs as a table, this process last.
func (c *Stats) write(w io.Writer) error {
	rows := append(c.Programs, probe.ProgramStats{Program: "user space", CPU: c.UserCPU})
	return WriteTable(w, []string{"PROGRAM", "RUNS", "NS/RUN", "CPU%"}, rows, func(p probe.ProgramStats) []string {
		return []string{
			p.Program, strconv.FormatUint(p.Runs, 10),
			strconv.FormatFloat(p.NsARun, 'f', 0, 64), strconv.FormatFloat(100*p.CPU, 'f', 2, 64),
		}
	})
}

func processCPU() time.Duration {
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &use); err != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
