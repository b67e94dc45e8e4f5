// Package prove compares what the tools show with what a workload of its own did, and with counters of the
// kernel, on the running system.
package prove

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Report is the result of a run.
type Report struct {
	Contradicted bool   `json:"contradicted" help:"whether a column of a tool is contradicted"`
	Interrupted  bool   `json:"interrupted" help:"whether the run was interrupted; tools that it did not reach are missing"`
	Kernel       string `json:"kernel" help:"release of the kernel"`
	Tools        []Tool `json:"tools" help:"the result of each tool"`
}

// Tool is the result of a tool.
type Tool struct {
	Tool     string   `json:"tool" help:"name of the tool"`
	Result   Result   `json:"result" help:"contradicted if a column is; proved if a column is proved and none is contradicted; otherwise not provable here"`
	Reason   string   `json:"reason,omitempty" help:"why the tool is not provable here"`
	Workload string   `json:"workload,omitempty" help:"what the workload did"`
	Args     []string `json:"args,omitempty" help:"the arguments of the tool"`
	Seconds  float64  `json:"seconds" help:"how long the proof took"`
	Columns  []Column `json:"columns,omitempty" help:"the result of each column"`
	Stats    *Stats   `json:"stats,omitempty" help:"with --stats: the conservation laws of the run"`

	denied bool // the tool or the workload lacks privileges
}

// A proof is a workload whose rows are known.
type proof struct {
	_    [0]func() // not comparable: the compiler generates code for each length of a list otherwise
	tool string
	job  string
	n    int    // how often the workload does it
	does string // what it does, for people
	args string // arguments of the tool; {pid} and other facts are replaced
	// own are columns that tell the rows of the workload from those of others: a row without the value of a
	// wanted row in them is ignored.
	own string
	// columns are those that this tool has of a log that several tools share, all by default.
	columns string
	// by are the columns by which the rows of a table are summed.
	by string
	// wait is set if the tool ends by itself; the workload then runs before it.
	list bool
	// async is set if the tool's events occur in interrupts or when other tasks leave the CPU.
	async bool
	// alone is set if the tool's filter does not apply to another process that does the same.
	alone bool
	// pairs are rows that begin and end something, see unpaired.
	pairs string
	// whole are arguments with which the tool shows all hits of hook, and counters the columns that count them.
	whole, hook, counters string
}

// Proofs returns the names of the tools with a proof.
func proofOf(name string) *proof {
	all := proofs()
	if i := slices.IndexFunc(all, func(p proof) bool { return p.tool == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// Prover runs proofs.
type Prover struct {
	// Program is the program that contains the tools, and performs the workloads.
	Program string
	// Distort changes the log of a workload, for tests.
	Distort func(tool string, rows []map[string]any)
	// Stats is set if the conservation laws are checked too.
	Stats bool
}

// Plan describes what would be run for a tool.
func Plan(name string) Tool {
	p := proofOf(name)
	if p == nil {
		return Tool{Tool: name, Result: NotProvable, Reason: reasonOf(name)}
	}
	return Tool{Tool: name, Workload: p.text(), Args: p.arguments(nil)}
}

func (p *proof) text() string {
	if p.n <= 1 {
		return p.does
	}
	return fmt.Sprintf("%d x %s", p.n, p.does)
}

func (p *proof) arguments(f facts) []string { return p.line(p.args, f, false) }

// line returns the command line of the tool with these arguments.
func (p *proof) line(more string, f facts, stats bool) []string {
	args := []string{p.tool, "--output", "json"}
	if stats {
		args = append(args, "--stats")
	}
	for _, a := range strings.Fields(more) {
		args = append(args, f.expand(a))
	}
	return args
}

// attempts is how often a proof runs if events were lost.
const attempts = 3

// Tool proves one tool.
func (v *Prover) Tool(ctx context.Context, name string) Tool {
	t := Plan(name)
	p := proofOf(name)
	if p == nil {
		return t
	}
	begin := time.Now()
	for range attempts {
		v.once(ctx, p, &t)
		if !t.lostEvents() || ctx.Err() != nil {
			break
		}
	}
	t.Seconds = float64(time.Since(begin).Milliseconds()) / 1000
	return t
}

func (t *Tool) lostEvents() bool {
	return slices.ContainsFunc(t.Columns, func(c Column) bool { return strings.HasPrefix(c.Reason, "events were lost") })
}

func (v *Prover) once(ctx context.Context, p *proof, t *Tool) {
	t.Columns, t.Stats, t.Reason = nil, nil, ""
	if err := v.prove(ctx, p, t); err != nil {
		t.Result, t.Reason = NotProvable, err.Error()
		t.denied = errors.As(err, new(*deniedError))
		if ctx.Err() != nil {
			t.Reason = "interrupted"
		}
		return
	}
	t.Result = resultOf(t.Columns)
	if resultOf(t.Stats.laws()) == Contradicted {
		t.Result = Contradicted
	}
	if t.Result == NotProvable {
		t.Reason = cmp.Or(t.Columns[0].Reason, "no column could be compared")
	}
}

func resultOf(columns []Column) Result {
	has := func(r Result) bool {
		return slices.ContainsFunc(columns, func(c Column) bool { return c.Result == r })
	}
	switch {
	case has(Contradicted):
		return Contradicted
	case has(Proved):
		return Proved
	}
	return NotProvable
}

func (v *Prover) prove(ctx context.Context, p *proof, t *Tool) error {
	w, err := v.start(p, p.n)
	if err != nil {
		return err
	}
	defer w.close()
	t.Args = p.line(p.args, w.facts, v.Stats)
	want, o, err := v.run(ctx, p, w, t.Args)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return err // an interrupted tool does not show all rows
	}
	if v.Distort != nil {
		maps := make([]map[string]any, len(want.Rows))
		for i, r := range want.Rows {
			maps[i] = r
		}
		v.Distort(p.tool, maps)
	}
	want.keep(strings.Fields(p.columns))
	rows := p.rowsOf(want, slices.Clone(o.rows))
	t.Columns = compare(want, rows, o.lost)
	if !v.Stats {
		return nil
	}
	t.Stats = p.statsOf(o, rows)
	if p.whole == "" {
		return nil
	}
	return v.whole(ctx, p, t.Stats)
}

// run lets the workload run while the tool observes it.
func (v *Prover) run(ctx context.Context, p *proof, w *process, args []string) (*log, *observation, error) {
	if p.list {
		want, err := w.run()
		if err != nil {
			return nil, nil, err
		}
		o, err := observe(ctx, v.Program, args)
		if err != nil {
			return nil, nil, err
		}
		return want, o, o.wait()
	}
	o, err := observe(ctx, v.Program, args)
	if err != nil {
		return nil, nil, err
	}
	if !p.alone {
		v.decoy(p)
	}
	before := hiddenRuns()
	want, err := w.run()
	hidden := hiddenRuns().since(before)
	if stopErr := o.stop(); err == nil {
		err = stopErr
	}
	if err == nil && jobs()[p.job].late != nil {
		want, err = w.run()
	}
	if p.async && o.lost != nil {
		o.lost["process 1 is hidden from BPF, runs"] = hidden
	}
	return want, o, err
}

// usedCPU is how long a process was on a CPU, and how often it got one.
type usedCPU struct{ ns, runs int }

// since returns how often the process was on a CPU since an earlier time. It may have been on one at that time.
func (u usedCPU) since(before usedCPU) int {
	if u.ns == before.ns {
		return u.runs - before.runs
	}
	return max(u.runs-before.runs, 1)
}

// hiddenRuns returns how often process 1 was scheduled, if it is hidden, as in some virtual machines: then no BPF
// program runs in its context, in which events of other tasks can occur, such as the switch to a task that waited
// for its CPU. Its executable is hidden too.
func hiddenRuns() (used usedCPU) {
	if _, err := os.Readlink("/proc/1/exe"); err == nil || os.Geteuid() != 0 {
		return used
	}
	all, _ := filepath.Glob("/proc/1/task/*/schedstat") // the only error is a malformed pattern
	for _, name := range all {
		text, _ := os.ReadFile(name)
		var cpu, wait, runs int
		if _, err := fmt.Sscan(string(text), &cpu, &wait, &runs); err == nil {
			used.ns, used.runs = used.ns+cpu, used.runs+runs
		}
	}
	return used
}

// decoys is how often another process does the same as the workload, which the tool must not show.
const decoys = 3

func (v *Prover) decoy(p *proof) {
	w, err := v.start(p, min(p.n, decoys))
	if err != nil {
		return
	}
	defer w.close()
	_, _ = w.run()
}

// rowsOf selects the rows of the workload, and sums the rows of tables.
func (p *proof) rowsOf(want *log, rows []row) []row {
	if p.by != "" {
		rows = inOrder(want.Rows, fold(rows, strings.Fields(p.by)), strings.Fields(p.by))
	}
	own := strings.Fields(p.own)
	if len(own) == 0 {
		return rows
	}
	ours := map[string]bool{}
	for _, r := range want.Rows {
		ours[r.id(own)] = true
	}
	return slices.DeleteFunc(rows, func(r row) bool { return !ours[r.id(own)] })
}

// process is a process that performs a workload.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	facts  facts
	dir    string
	cgroup string
}

// start starts the process of a workload, in a cgroup and with a directory of its own, and waits until it
// is prepared.
func (v *Prover) start(p *proof, n int) (*process, error) {
	dir, err := os.MkdirTemp(tempDir(), "corescope-prove-")
	if err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	w := &process{dir: dir, cgroup: newCgroup(filepath.Base(dir))}
	id := filepath.Base(dir)
	comm := "prove-" + id[max(0, len(id)-8):]
	w.cmd = exec.Command(v.Program, WorkVerb, p.job, strconv.Itoa(n), dir, comm)
	w.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.launch(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// tempDir returns a directory for files, if possible on a disk.
func tempDir() string {
	if os.Getenv("TMPDIR") == "" {
		if st, err := os.Stat("/var/tmp"); err == nil && st.IsDir() {
			return "/var/tmp"
		}
	}
	return os.TempDir()
}

const cannotRun = "the workload cannot run here"

func (w *process) launch() error {
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("create pipe: %w", err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("create pipe: %w", err)
	}
	w.in, w.out = in, json.NewDecoder(bufio.NewReader(out))
	w.out.UseNumber()
	if w.cgroup != "" {
		defer enter(w.cmd.SysProcAttr, w.cgroup)()
	}
	if err := w.cmd.Start(); err != nil {
		return fmt.Errorf("start the workload: %w", err)
	}
	if err := w.out.Decode(&w.facts); err != nil {
		return fmt.Errorf("read from the workload: %w", err)
	}
	message := w.facts["error"]
	if message == "" {
		return nil
	}
	err = fmt.Errorf("%s: %s", cannotRun, message)
	if w.facts[factDenied] != "" {
		return &deniedError{err}
	}
	return err
}

// enter lets the process start in the cgroup, and returns a function to call when it has started.
func enter(attr *syscall.SysProcAttr, cgroup string) func() {
	dir, err := os.Open(cgroup)
	if err != nil {
		return func() {}
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	return func() { dir.Close() }
}

// run lets the workload run, and returns its log.
func (w *process) run() (*log, error) {
	if _, err := io.WriteString(w.in, "run\n"); err != nil {
		return nil, fmt.Errorf("start the workload: %w", err)
	}
	var l log
	if err := w.out.Decode(&l); err != nil {
		return nil, fmt.Errorf("read from the workload: %w", err)
	}
	if l.NotHere != "" {
		return nil, fmt.Errorf("%s: %s", cannotRun, l.NotHere)
	}
	if l.Error != "" {
		return nil, errors.New("the workload failed: " + l.Error)
	}
	return &l, nil
}

// close ends the process and removes what it left.
func (w *process) close() {
	if w.in != nil {
		w.in.Close()
	}
	if w.cmd.Process != nil {
		_ = w.cmd.Wait()
	}
	_ = os.RemoveAll(w.dir)
	if w.cgroup != "" {
		_ = os.Remove(w.cgroup)
	}
}

// inOrder returns the rows of a table in the order of the wanted ones, as far as these have the same values
// of the columns by. Tables are sorted by other columns.
func inOrder(want, rows []row, by []string) []row {
	known := slices.DeleteFunc(slices.Clone(by), func(k string) bool {
		return slices.ContainsFunc(want, func(r row) bool { _, isRange := r[k].(map[string]any); return isRange || r[k] == nil })
	})
	place := map[string]int{}
	for i, r := range want {
		place[r.id(known)] = i + 1
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(place[a.id(known)], place[b.id(known)]) })
	return rows
}
