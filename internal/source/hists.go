package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

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
	// UserStacks is set if they contain IDs of user stacks. It has the options for unwinding.
	UserStacks *stacktrace.UserStacks
	// Keys lists the columns of L that histograms are grouped by in this run, shown in the order of
	// L. Without keys there is one histogram.
	Keys []string
	// Slots, if set, is the name of values that are small integers: text then has a line per value.
	Slots string
	// Cumulative is set if each report contains all values since the start, not only those of its
	// interval.
	Cumulative bool
	// Percentiles, if set, are shown instead of the values: text and CSV have one line per
	// histogram, and JSON has them in addition.
	Percentiles Percentiles

	label  L // columns are bound to it
	key    tool.Columns
	cols   tool.Columns
	stats  histogram.Stats
	plain  bool // without keys: values are counted in the map "hists_plain"
	epochs epochs
	hists  map[L]*histogram.Histogram
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

func (h *Hists[K, L]) Describe(env *tool.Env, spec *ebpf.CollectionSpec) (*tool.Description, error) {
	if err := checkHists[K](spec); err != nil {
		return nil, err
	}
	cols, err := column.Of(&h.label)
	if err != nil {
		return nil, err
	}
	keys, err := column.Select(cols, h.Keys, h.Keys)
	if err != nil {
		return nil, err
	}
	h.Keys = slices.DeleteFunc(column.Keys(cols), func(key string) bool { return column.Find(keys, key) == nil })
	keys, _ = column.Select(cols, h.Keys, h.Keys)
	stats, err := column.Of(&h.stats)
	if err != nil {
		return nil, err
	}
	h.cols = tool.Columns{All: append(keys, stats...)}
	h.key = tool.Columns{All: keys, Shown: keys}
	if h.Variables == nil {
		h.Variables = map[string]any{}
	}
	h.Variables["hist_unit_ns"] = uint64(h.Unit)
	h.plain = len(h.Keys) == 0
	h.Variables["hist_plain"] = h.plain
	h.sizeMaps()
	if h.Stacks != nil {
		if err := h.describeStacks(env, spec); err != nil {
			return nil, err
		}
	}
	return &tool.Description{
		Columns: &h.cols, Keys: keys, Labels: cols, Text: h.Keys, Percentiles: h.Percentiles != nil, Title: h.title(keys),
	}, nil
}

// title returns the first line of a histogram, or of the table of percentiles, with single spaces.
func (h *Hists[K, L]) title(keys []column.Column) string {
	if h.Percentiles == nil {
		return cmp.Or(h.Slots, h.Unit.String()) + " : count distribution"
	}
	titles := (&histReport{percentiles: h.Percentiles}).appendPercentileTitles(nil, keys)
	return strings.Join(strings.Fields(string(titles)), " ")
}

// sizeMaps minimizes the map that this run does not use: the hash map takes 16 bytes per possible
// entry, the array 31 KB per CPU.
func (h *Hists[K, L]) sizeMaps() {
	if h.MapEntries == nil {
		h.MapEntries = map[string]uint32{}
	}
	if h.plain {
		h.MapEntries["hists"] = 1
	} else {
		h.MapEntries["hists_plain"] = 1
	}
}

func checkHists[K any](spec *ebpf.CollectionSpec) error {
	hists, plain := spec.Maps["hists"], spec.Maps["hists_plain"]
	if hists == nil || plain == nil {
		return errors.New("the object has no histograms")
	}
	return errors.Join(
		checkStruct(hists.Key, reflect.TypeFor[histEntry[K]]()),
		checkStruct(hists.Value, reflect.TypeFor[histogram.Slot]()),
		checkStruct(plain.Value, reflect.TypeFor[histSlots]()),
	)
}

func checkStruct(c btf.Type, t reflect.Type) error {
	s, ok := btf.UnderlyingType(c).(*btf.Struct)
	if !ok {
		return fmt.Errorf("check %s: %s is not a struct", t, c)
	}
	return layout.Check(s, t)
}

func (h *Hists[K, L]) Kind() string { return output.KindHistogram }

// Base adds the capabilities for symbolization.
func (h *Hists[K, L]) Base() *tool.Plan {
	if h.Stacks != nil {
		h.Keep = namesKeep()
	}
	return &h.Plan
}

// describeStacks prepares reading and symbolizing stacks.
func (h *Hists[K, L]) describeStacks(env *tool.Env, spec *ebpf.CollectionSpec) error {
	var err error
	user := &stacktrace.UserStacks{}
	if h.UserStacks != nil {
		user = h.UserStacks
		h.unwind = user.ByTables()
	}
	if h.traces, err = stacktrace.New(spec, h.Stacks, user, env.Machine()); err != nil {
		return err
	}
	h.Label = func(k K) L { return h.Trace(k, h.traces) }
	return h.stackReading.describe(spec, &h.Plan, reflect.TypeFor[K](), ringBytes)
}

func (h *Hists[K, L]) Run(ctx context.Context, s *tool.Session) (err error) {
	if h.Stacks != nil {
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
	if h.Stacks != nil {
		h.begin()
	}
	if err := s.Ready(); err != nil {
		return err
	}
	return h.repeat(ctx, s, &h.epochs, nil, func() error { return h.report(s) })
}

// report writes the histograms of the epochs that have ended, and clears them.
func (h *Hists[K, L]) report(s *tool.Session) error {
	if err := h.drain(s); err != nil {
		return err
	}
	s.Shown++
	r := histReport{
		Session: s, time: value.Time(time.Now().UnixNano()), stamp: h.Timestamp, percentiles: h.Percentiles, slots: h.Slots,
	}
	r.begin(h.key.Shown)
	var events uint64
	for _, l := range h.sorted() {
		hist := h.hists[l]
		h.label = l
		h.stats = hist.Stats()
		events += hist.Count()
		if s.Wanted(&h.cols) {
			r.write(h.key.Shown, hist)
		}
	}
	if h.Cumulative {
		s.Events = events
	} else {
		s.Events += events
		clear(h.hists)
	}
	if h.Stacks != nil {
		return errors.Join(s.Out.Flush(), h.endDrain())
	}
	return s.Out.Flush()
}

// sorted returns the labels by number of values, largest first.
func (h *Hists[K, L]) sorted() []L {
	if len(h.Keys) == 0 && len(h.hists) == 0 {
		var noLabel L
		h.hists = map[L]*histogram.Histogram{noLabel: histogram.New(h.Unit)}
	}
	type counted struct {
		label L
		count uint64
		text  string
	}
	var all []counted
	for l, hist := range h.hists {
		h.label = l
		all = append(all, counted{l, hist.Count(), h.text()})
	}
	sortRows(all, func(i, k int) int {
		return cmp.Or(cmp.Compare(all[k].count, all[i].count), strings.Compare(all[i].text, all[k].text))
	})
	labels := make([]L, len(all))
	for i, c := range all {
		labels[i] = c.label
	}
	return labels
}

func (h *Hists[K, L]) text() string {
	var b []byte
	for i := range h.key.Shown {
		b = append(h.key.Shown[i].AppendText(b), ' ')
	}
	return string(b)
}
