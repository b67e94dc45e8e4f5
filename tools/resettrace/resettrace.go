// Package resettrace removes what crashed tracers have left in tracefs.
package resettrace

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

type options struct {
	Files    []string `pos:"file..." help:"only these files of tracefs, such as uprobe_events or current_tracer"`
	Force    bool     `flag:"force,F" help:"reset all files, also if a process seems to trace"`
	DryRun   bool     `flag:"dry-run,n" help:"show what would be reset, and change nothing"`
	Quiet    bool     `flag:"quiet,q" help:"print nothing but errors"`
	Instance string   `flag:"instance" arg:"NAME" help:"reset this instance (directory below instances) instead of the global files"`
}

// Check returns an error for names that are not files of tracefs.
func (o *options) Check() error {
	if o.Instance != "" && o.Instance != filepath.Base(o.Instance) {
		return fmt.Errorf("--instance %s: it must be a name", o.Instance)
	}
	return nil
}

type row struct {
	Time   value.Time  `json:"time" col:"TIME,width=8" help:"when the row was written, wall time"`
	Action string      `json:"action" col:"ACTION,width=11" help:"reset or removed, with --dry-run would reset or would remove; kept: not reset, for the reason; unreadable: the kernel does not permit to read the file, as with lockdown, so that it is unknown whether it needs a reset; failed"`
	File   string      `json:"file" col:"FILE,width=22" help:"file below tracefs"`
	Value  value.Bytes `json:"value" col:"VALUE,width=40" help:"its contents before: one line, or the first line and the number of lines; for probes the definition of one"`
	Reason value.Bytes `json:"reason" col:"REASON" help:"why it was kept, or the error; absent otherwise"`
}

// Stamp returns the time, which is set when the row is written.
func (r *row) Stamp() *value.Time { return &r.Time }

// Tool is the definition of resettrace.
var Tool = tool.Define(tool.Spec{
	Name:     "resettrace",
	Also:     []tool.Alias{{Name: "reset-trace"}},
	Category: "system",
	Summary:  "Remove what crashed tracers left in tracefs: probes of kprobe_events and uprobe_events, ftrace settings",
	Description: `Changes the system: resets the state of tracing in tracefs. A tracer that is killed can leave probes that cost time at each call, and settings of ftrace that write to buffers which nobody reads. Tools of corescope leave nothing: the kernel detaches their programs.

Without -F it removes the probes in dynamic_events (or kprobe_events and uprobe_events) that no process uses, clears the trace buffer, and reports each other setting that differs from the default as kept. With -F it resets these settings too: current_tracer, tracing_on, tracing_thresh, filters of functions, processes and events, triggers, and enabled events.

Each row is a file, or a probe of it, with the contents before. --dry-run shows the rows and changes nothing; use it first.

The kernel refuses to remove a probe that perf or a BPF program uses, also with -F. If a living process has opened a file of tracefs other than trace_marker, it seems to trace: then nothing is reset without -F. The same holds if a lock file of perf-tools (/var/tmp/.ftrace-lock) names a living process, and for a probe whose name has the PID of one (BCC, libbpf). A process that only wrote a setting and closed the file cannot be seen.

User events (u:) and synthetic events (s:) are not removed: programs create them, not tracers. Instances of tracefs are not touched, unless --instance selects one. The clock, the sizes of buffers, the CPU mask and options of the trace output are not reset.`,
	Peers: []string{
		"-F and -q are those of BCC; -v has no effect on the rows, which always have the contents before. Files in the default state have no row.",
		"Probes in use are left alone one by one; BCC truncates kprobe_events, which fails as a whole if one of them is in use.",
		"dynamic_events is covered, so also probes of functions (f:, t:) and of events (e:); BCC resets kprobes and uprobes.",
		"A process that has opened tracefs, or a lock file with a living process, prevents changes without -F.",
		"--dry-run, --instance and the names of files do not exist in BCC.",
	},
	Examples: []string{
		"resettrace --dry-run      # what would be reset, and what would be kept",
		"resettrace                # remove probes that nobody uses, and clear the trace buffer",
		"resettrace -F             # reset all settings of ftrace too",
		"resettrace uprobe_events  # only uprobes",
	},
	NoPrograms: true,
	Access:     "Only root can read and write tracefs. To see which process has opened a file, CAP_SYS_PTRACE is needed for processes of other users.",
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	l := &source.List[row]{Columns: []string{"action", "file", "value", "reason"}}
	l.RowNoun = "leftover of a tracer"
	l.Resolve = func(*tool.Plan, *tool.Kernel) error { // doctor(1) reports the error
		_, err := o.dir()
		return err
	}
	l.Each = func(show func() error) error {
		rows, err := o.reset("/proc")
		for i := range rows {
			l.Row = rows[i]
			if err := show(); err != nil {
				return err
			}
		}
		return err
	}
	l.Plan.Keep = []system.Capability{system.CapSysPtrace, system.CapDACReadSearch}
	if o.Quiet {
		l.Print = func(io.Writer) error {
			_, err := o.reset("/proc")
			return err
		}
	}
	return l, nil
}

// reset resets the files, and returns a row for each that differs from the default.
func (o *options) reset(proc string) ([]row, error) {
	dir, err := o.dir()
	if err != nil {
		return nil, err
	}
	r := &resetter{options: o, dir: dir, proc: proc}
	if !o.Force {
		if r.user, err = findUser(dir, proc); err != nil {
			return nil, err
		}
	}
	for _, name := range o.Files {
		if !isKnown(name) {
			return nil, flags.Usage(fmt.Errorf("%s is not a file that is reset", name))
		}
	}
	r.all()
	if r.failed > 0 {
		err = fmt.Errorf("could not reset %d of %d files and probes", r.failed, len(r.rows))
	}
	return r.rows, err
}

func (o *options) dir() (string, error) {
	dir, err := (&target.Finder{}).TracingDir()
	if err != nil || o.Instance == "" {
		return dir, err
	}
	dir = filepath.Join(dir, "instances", o.Instance)
	if _, err := os.Stat(dir); err != nil {
		return "", flags.Usage(fmt.Errorf("--instance: %w", err))
	}
	return dir, nil
}
