package tool

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
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/layout"
	"github.com/corescope/corescope/internal/value"
)

// Hists are distributions of durations: the programs count into the map "hists" by
// struct hist_key (hist.bpf.h), whose Go type is K. Each key is shown as an L, whose
// fields are columns; histograms of equal labels are added up.
type Hists[K, L comparable] struct {
	Plan
	Interval
	// Unit of what is shown. The programs measure in ns.
	Unit histogram.Unit
	// Label turns a key into what is shown of it.
	Label func(K) L
	// Stacks are set where keys have numbers of stacks (stacks.bpf.h), of type StackID.
	// Then Trace takes the place of Label, and has the stacks from the traces.
	Stacks *Frames
	Trace  func(K, *Traces) L
	// Keys are the columns of L that tell the histograms apart in this run, shown in
	// L's order; without any there is one histogram.
	Keys []string
	// Cumulative reports are of all since the start, not of their intervals.
	Cumulative bool

	label  L // the one that columns are bound to
	key    columns
	cols   columns
	stats  hstats
	plain  bool // there are no keys, so all is in the map "hists_plain"
	epochs epochs
	hists  map[L]*histogram.Histogram
	stackReading
}

// hstats are the columns of a histogram's own, for --filter.
type hstats struct {
	Count uint64  `json:"count" help:"values"`
	Sum   float64 `json:"sum" help:"sum of the values, in the unit"`
	Min   float64 `json:"min" help:"least value, in the unit"`
	Max   float64 `json:"max" help:"greatest value, in the unit"`
	Mean  float64 `json:"mean" help:"mean, in the unit"`
	P50   float64 `json:"p50" help:"median, in the unit"`
	P90   float64 `json:"p90" help:"90th percentile, in the unit"`
	P99   float64 `json:"p99" help:"99th percentile, in the unit"`
	P999  float64 `json:"p999" help:"99.9th percentile, in the unit"`
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
	Slots [976]histogram.Slot
}

func (h *Hists[K, L]) describe(env *Env, spec *ebpf.CollectionSpec) (*description, error) {
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
	h.cols = columns{all: append(keys, stats...)}
	h.key = columns{all: keys, shown: keys}
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
	return &description{columns: &h.cols, keys: keys, labels: cols, text: h.Keys}, nil
}

// sizeMaps keeps small what this run does not use of the two maps: the hash costs 16
// bytes for each entry that there may be, the array 31 KB on each CPU.
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

func (h *Hists[K, L]) kind() string { return kindHistogram }

// plan adds what the names of functions take.
func (h *Hists[K, L]) plan() *Plan {
	if h.Stacks != nil {
		h.Keep = namesKeep()
	}
	return &h.Plan
}

// describeStacks has the keys kept until their stacks have names.
func (h *Hists[K, L]) describeStacks(env *Env, spec *ebpf.CollectionSpec) error {
	if err := h.Stacks.check(); err != nil {
		return flags.Usage(err)
	}
	var err error
	if h.traces, err = newTraces(h.Stacks, &UserStacks{}, env); err != nil {
		return err
	}
	h.Label = func(k K) L { return h.Trace(k, h.traces) }
	return h.stackReading.describe(spec, &h.Plan, reflect.TypeFor[K](), ringBytes)
}

func (h *Hists[K, L]) run(ctx context.Context, s *session) (err error) {
	if h.Stacks != nil {
		if err := h.open(s, ringBytes); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, h.close()) }()
	}
	ctx, cancel, err := s.attach(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if h.Stacks != nil {
		h.begin()
	}
	if err := s.ready(); err != nil {
		return err
	}
	return h.repeat(ctx, s, &h.epochs, nil, func() error { return h.report(s) })
}

// report writes the histograms of the epochs that are over, and forgets them.
func (h *Hists[K, L]) report(s *session) error {
	if err := h.drain(s); err != nil {
		return err
	}
	s.shown++
	r := histReport{session: s, time: value.Time(time.Now().UnixNano()), stamp: h.Timestamp}
	r.begin(h.key.shown)
	var events uint64
	for _, l := range h.sorted() {
		hist := h.hists[l]
		h.label = l
		h.stats = statsOf(hist)
		events += hist.Count()
		if s.wanted(&h.cols) {
			r.write(h.key.shown, hist)
		}
	}
	if h.Cumulative {
		s.events = events
	} else {
		s.events += events
		clear(h.hists)
	}
	return s.out.Flush()
}

func statsOf(h *histogram.Histogram) hstats {
	return hstats{
		Count: h.Count(), Sum: h.Sum(), Min: h.Min(), Max: h.Max(), Mean: h.Mean(),
		P50: h.Percentile(50), P90: h.Percentile(90), P99: h.Percentile(99), P999: h.Percentile(99.9),
	}
}

// sorted lists the labels, the one with the most values first.
func (h *Hists[K, L]) sorted() []L {
	if len(h.Keys) == 0 && len(h.hists) == 0 {
		var none L
		h.hists = map[L]*histogram.Histogram{none: histogram.New(h.Unit)}
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
	for i := range h.key.shown {
		b = append(h.key.shown[i].AppendText(b), ' ')
	}
	return string(b)
}
