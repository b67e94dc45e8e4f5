package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/layout"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// Hists is a source of latency histograms: programs count durations into the map "hists", keyed by
// struct hist_key (hist.bpf.h), whose Go type is K. Each key is shown as an L, whose fields are
// columns. Histograms with equal labels are added.
type Hists[K, L comparable] struct {
	tool.Plan
	Interval
	// Unit of the output. Programs measure in ns.
	Unit histogram.Unit
	// Label converts a key to its label.
	Label func(K) L
	// Stacks is set if keys contain stack IDs (stacks.bpf.h), of type StackID. Trace then replaces
	// Label; it looks up stacks in the traces.
	Stacks *stacktrace.Frames
	Trace  func(K, *stacktrace.Traces) L
	// Loaded, if set, is called when the programs and maps are loaded, for a Trace that reads a map.
	Loaded func(*tool.Session)
	// UserStacks is set if they contain IDs of user stacks. It has the options for unwinding.
	UserStacks *stacktrace.UserStacks
	// Keys lists the columns of L that histograms are grouped by in this run, shown in the order of
	// L. Without keys there is one histogram.
	Keys []string
	// Bounds has the largest expected numbers of values of columns of L. If each of Keys has one, the map is
	// only as large as they require, which saves memory and time at the start.
	Bounds map[string]uint32
	// Name, if set, is the name of the values in text, as in peers. Otherwise it is that of the unit.
	Name string
	// Slots, if set, is the name of values that are small integers: text then has a line per value.
	Slots string
	// Due, if set, finds the samples of CPUs that were due and not taken. Those of an idle CPU are
	// counted as the value 0 of the key that Idle returns; others are lost.
	Due  *Due
	Idle func(cpu uint32) K
	// Cumulative is set if each report contains all values since the start, not only those of its
	// interval.
	Cumulative bool
	// Percentiles, if set, are shown instead of the values: text and CSV have one line per
	// histogram, and JSON has them in addition.
	Percentiles Percentiles

	label L
	hists hists
}

// hists is the part of Hists that does not depend on its types, so that the binary contains it only
// once.
type hists struct {
	plan        *tool.Plan
	interval    *Interval
	bounds      map[string]uint32 // Hists.Bounds
	unit        histogram.Unit
	stacks      *stacktrace.Frames // Hists.Stacks
	name        string             // Hists.Name
	slots       string
	cumulative  bool
	percentiles Percentiles
	due         *Due
	idle        func(cpu uint32) unsafe.Pointer // the key, of Hists.Idle

	entry reflect.Type // histEntry[K]
	// label points to the label of the generic type: columns are bound to it.
	label any
	// labelOf returns the label of a key.
	labelOf func(key unsafe.Pointer) any

	key   tool.Columns
	cols  tool.Columns
	stats histogram.Stats
	plain bool // without keys: values are counted in the map "hists_plain"
	// exponential is set if the output is exported: slots are those of Histogram.Exponential.
	exponential bool
	epochs      epochs
	byLabel     map[any]*histogram.Histogram
	heat        *heat
	stackReading
}

// histEntry is struct hist_entry of hist.bpf.h, the key of the map.
type histEntry[K any] struct {
	Key   K
	Slot  uint16
	Epoch uint8
	_     uint8
	CPU   uint32
}

// histSlots is struct hist_slots of hist.bpf.h, the value of the map "hists_plain".
type histSlots struct {
	Slots [histogram.Slots]histogram.Slot
}

// histExemplar is struct hist_exemplar of histtask.bpf.h.
type histExemplar struct {
	TimeNs   value.Time
	Value    uint64
	CgroupID uint64
	PID, TID uint32
	Comm     value.Comm
}

func (h *Hists[K, L]) Kind() string { return output.KindHistogram }

// Base adds the capabilities for symbolization.
func (h *Hists[K, L]) Base() *tool.Plan {
	if h.Stacks != nil {
		h.Keep = namesKeep()
	}
	return &h.Plan
}

func (h *Hists[K, L]) Describe(env *tool.Env, spec *ebpf.CollectionSpec) (*tool.Description, error) {
	h.hists = hists{
		plan: &h.Plan, interval: &h.Interval, bounds: h.Bounds, unit: h.Unit, stacks: h.Stacks, name: h.Name, slots: h.Slots,
		cumulative: h.Cumulative, percentiles: h.Percentiles, entry: reflect.TypeFor[histEntry[K]](), label: &h.label,
		labelOf: func(key unsafe.Pointer) any { return h.Label(*(*K)(key)) },
	}
	if h.Stacks != nil {
		h.hists.labelOf = func(key unsafe.Pointer) any { return h.Trace(*(*K)(key), h.hists.traces) }
	}
	h.hists.due = h.Due
	h.hists.idle = func(cpu uint32) unsafe.Pointer {
		key := h.Idle(cpu)
		return unsafe.Pointer(&key)
	}
	return h.hists.describe(env, spec, h.Keys, h.UserStacks)
}

func (h *Hists[K, L]) Run(ctx context.Context, s *tool.Session) error {
	if h.Loaded != nil {
		h.Loaded(s)
	}
	return h.hists.run(ctx, s)
}

// describe binds the columns. names lists those that histograms are grouped by.
func (h *hists) describe(
	env *tool.Env, spec *ebpf.CollectionSpec, names []string, user *stacktrace.UserStacks,
) (*tool.Description, error) {
	if err := h.check(spec); err != nil {
		return nil, err
	}
	cols, err := column.Of(h.label)
	if err != nil {
		return nil, err
	}
	keys, err := column.Select(cols, names, names)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(column.Keys(cols), func(key string) bool { return column.Find(keys, key) == nil })
	keys, _ = column.Select(cols, names, names)
	stats, err := column.Of(&h.stats)
	if err != nil {
		return nil, err
	}
	h.cols = tool.Columns{All: append(keys, stats...)}
	h.key = tool.Columns{All: keys, Shown: keys}
	h.plain = len(keys) == 0
	h.exponential = env.IsExported
	h.setUp(h.plan)
	if err := h.size(spec, names); err != nil {
		return nil, err
	}
	if h.stacks != nil {
		if err := h.describeStacks(env, spec, user); err != nil {
			return nil, err
		}
	}
	return &tool.Description{
		Columns: &h.cols, Keys: keys, Labels: cols, Text: names, Percentiles: h.percentiles != nil, Title: h.title(keys), Unit: h.unit,
	}, nil
}

// title returns the first line of a histogram, or of the table of percentiles, with single spaces.
func (h *hists) title(keys []column.Column) string {
	if h.percentiles == nil {
		return cmp.Or(h.slots, h.name, h.unit.String()) + " : count distribution"
	}
	titles := (&histReport{percentiles: h.percentiles}).appendPercentileTitles(nil, keys)
	return strings.Join(strings.Fields(string(titles)), " ")
}

// setUp sets the variables, and minimizes the map that this run does not use: the hash map takes 16
// bytes per possible entry, the array 31 KB per CPU.
func (h *hists) setUp(p *tool.Plan) {
	if p.Variables == nil {
		p.Variables = map[string]any{}
	}
	p.Variables["hist_plain"] = h.plain
	if h.exponential {
		maps.Copy(p.Variables, h.unit.ExponentialVariables())
	} else {
		p.Variables["hist_unit_ns"] = uint64(h.unit)
		p.Cut = append(p.Cut, "hist_count_exponential", "hist_count_task")
	}
	if p.MapEntries == nil {
		p.MapEntries = map[string]uint32{}
	}
	if h.plain {
		p.MapEntries["hists"] = 1
		p.MapEntries["hist_exemplars"] = 2 * histogram.Slots
	} else {
		p.MapEntries["hists_plain"] = 1
	}
}

// slotsPerKey is the number of slots per key, epoch and CPU that the map has space for: those of 16 octaves,
// such as 15 us to 1 s. Few keys have values in all of these on each CPU and in two intervals.
const slotsPerKey = 256

// size sets the size of the hash map for Hists.Bounds, and how it is emptied before it is full.
func (h *hists) size(spec *ebpf.CollectionSpec, keys []string) error {
	if h.plain {
		return nil
	}
	if f := newFilling(spec, "hists", nil); f != nil {
		f.drain, f.kept = h.empty, h.slotsKept
		h.epochs.filling = f
	}
	bound := uint64(slotsPerKey)
	for _, key := range keys {
		bound = min(bound*uint64(h.bounds[key]), math.MaxUint32) // 0 if there is a key without a bound
	}
	return sizeCounts(spec, h.plan, "hists", h.epochs.filling, bound)
}

func (h *hists) check(spec *ebpf.CollectionSpec) error {
	hists, plain := spec.Maps["hists"], spec.Maps["hists_plain"]
	if hists == nil || plain == nil {
		return errors.New("the object has no histograms")
	}
	err := errors.Join(
		checkStruct(hists.Key, h.entry),
		checkStruct(hists.Value, reflect.TypeFor[histogram.Slot]()),
		checkStruct(plain.Value, reflect.TypeFor[histSlots]()),
	)
	if exemplars := spec.Maps["hist_exemplars"]; exemplars != nil {
		err = errors.Join(err, checkStruct(exemplars.Value, reflect.TypeFor[histExemplar]()))
	}
	return err
}

func checkStruct(c btf.Type, t reflect.Type) error {
	s, ok := btf.UnderlyingType(c).(*btf.Struct)
	if !ok {
		return fmt.Errorf("check %s: %s is not a struct", t, c)
	}
	return layout.Check(s, t)
}

// describeStacks prepares reading and symbolizing stacks.
func (h *hists) describeStacks(env *tool.Env, spec *ebpf.CollectionSpec, user *stacktrace.UserStacks) error {
	var err error
	if user == nil {
		user = &stacktrace.UserStacks{}
	} else {
		h.unwind = user.ByTables()
	}
	if h.traces, err = stacktrace.New(spec, h.stacks, user, env.Machine()); err != nil {
		return err
	}
	return h.stackReading.describe(spec, h.plan, h.entry.Field(0).Type, ringBytes)
}

func (h *hists) run(ctx context.Context, s *tool.Session) (err error) {
	if h.stacks != nil {
		if err := h.open(s, ringBytes); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, h.close()) }()
	}
	ctx, cancel, err := s.Attach(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if h.stacks != nil {
		h.begin(s)
	}
	h.epochs.due = h.due
	if err := h.due.measure(s); err != nil {
		return err
	}
	if err := s.Ready(); err != nil {
		return err
	}
	h.heat = h.newHeat(s)
	if err := h.interval.repeat(ctx, s, &h.epochs, nil, func() error { return h.report(s) }); err != nil || h.heat == nil {
		return err
	}
	return h.heat.write(s)
}

// report writes the histograms of the epochs that have ended, and clears them.
func (h *hists) report(s *tool.Session) error {
	if err := h.drain(s); err != nil {
		return err
	}
	for _, m := range h.due.take(s) {
		h.add(h.idle(m.cpu), 0, &histogram.Slot{Count: m.idle})
	}
	s.Shown++
	if h.heat != nil {
		h.reportHeat(s)
	} else if err := h.reportRows(s); err != nil {
		return err
	}
	if !h.cumulative {
		clear(h.byLabel)
	}
	if h.stacks != nil {
		return errors.Join(s.Out.Flush(), h.endDrain())
	}
	return s.Out.Flush()
}

// reportRows writes the histograms as text, JSON or CSV, or passes them to a sink.
func (h *hists) reportRows(s *tool.Session) error {
	r := histReport{
		Session: s, time: value.Time(time.Now().UnixNano()), stamp: h.interval.Timestamp, percentiles: h.percentiles,
		name: cmp.Or(h.name, h.unit.String()), slots: h.slots,
	}
	r.begin(h.key.Shown)
	var events uint64
	for _, l := range h.sorted() {
		hist := h.byLabel[l]
		h.set(l)
		h.stats = hist.Stats()
		if h.isWanted(s, hist) {
			events += hist.Count()
			if err := r.write(h.key.Shown, hist); err != nil {
				return err
			}
		}
	}
	if h.cumulative {
		s.Events = events
	} else {
		s.Events += events
	}
	return nil
}

// isWanted reports whether the current histogram passes --filter. An empty one is no row that it excludes.
func (h *hists) isWanted(s *tool.Session, hist *histogram.Histogram) bool {
	excluded := s.Excluded
	ok := s.Wanted(&h.cols)
	if hist.Count() == 0 {
		s.Excluded = excluded
	}
	return ok
}

// reportHeat adds the histograms to the heat maps.
func (h *hists) reportHeat(s *tool.Session) {
	at, isRest := h.epochs.at, !s.Objects.Attached()
	if isRest {
		at = time.Now()
	}
	labels := h.sorted()
	// The rest after the last full interval is omitted if it is empty.
	if isRest && s.Shown > 1 && h.count() == 0 {
		return
	}
	h.heat.Begin(h.heat.begin, at)
	h.heat.begin = at
	for _, l := range labels {
		hist := h.byLabel[l]
		h.set(l)
		h.stats = hist.Stats()
		if h.isWanted(s, hist) {
			s.Events += hist.Count()
			h.heat.Add(heading(h.key.Shown), hist)
		}
	}
	h.heat.End()
}

// count returns the number of values of all histograms.
func (h *hists) count() (n uint64) {
	for _, hist := range h.byLabel {
		n += hist.Count()
	}
	return n
}

// set assigns to the label that columns are bound to.
func (h *hists) set(label any) { reflect.ValueOf(h.label).Elem().Set(reflect.ValueOf(label)) }

// sorted returns the labels by number of values, largest first.
func (h *hists) sorted() []any {
	if len(h.key.All) == 0 && len(h.byLabel) == 0 {
		h.byLabel = map[any]*histogram.Histogram{reflect.Zero(reflect.TypeOf(h.label).Elem()).Interface(): h.newHistogram()}
	}
	type counted struct {
		label any
		count uint64
		text  string
	}
	var all []counted
	for l, hist := range h.byLabel {
		h.set(l)
		all = append(all, counted{l, hist.Count(), h.text()})
	}
	sortRows(all, func(i, k int) int {
		return cmp.Or(cmp.Compare(all[k].count, all[i].count), strings.Compare(all[i].text, all[k].text))
	})
	labels := make([]any, len(all))
	for i, c := range all {
		labels[i] = c.label
	}
	return labels
}

func (h *hists) text() string {
	var b []byte
	for i := range h.key.Shown {
		b = append(h.key.Shown[i].AppendText(b), ' ')
	}
	return string(b)
}
