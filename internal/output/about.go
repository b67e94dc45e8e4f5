package output

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/value"
)

// Ready reports that all hooks are attached. The help tags of this type and the next ones are the
// descriptions in their JSON Schemas.
type Ready struct {
	Type  string    `json:"type"`
	Time  time.Time `json:"time" help:"wall time when the line was written"`
	Tool  string    `json:"tool" help:"name of the tool"`
	Hooks []string  `json:"hooks" help:"attached hooks, each with its attach point, such as open: tp_btf/sys_exit"`
}

// Lost reports the events or counts lost since the previous Lost, by loss reason.
type Lost struct {
	Type    string            `json:"type"`
	Time    time.Time         `json:"time" help:"wall time when the line was written"`
	Lost    uint64            `json:"lost" help:"events or counts lost since the previous line of this type"`
	Reasons map[string]uint64 `json:"reasons" help:"number of lost events by loss reason"`
}

// Summary is the last line of a run.
type Summary struct {
	Type     string            `json:"type"`
	Time     time.Time         `json:"time" help:"wall time when the line was written"`
	Events   uint64            `json:"events" help:"rows printed, or values counted in histograms"`
	Lost     uint64            `json:"lost" help:"total number of lost events or counts"`
	Reasons  map[string]uint64 `json:"reasons,omitempty" help:"number of lost events by loss reason"`
	Counters map[string]uint64 `json:"counters,omitempty" help:"other counters of the tool"`
	Stats    any               `json:"stats,omitempty" help:"with --stats: the cost of the run"`
}

// stamp is a time that is encoded with nanoseconds, as in rows.
type stamp time.Time

// MarshalJSON returns the time as a JSON string.
func (s stamp) MarshalJSON() ([]byte, error) {
	t := value.Time(time.Time(s).UnixNano())
	return t.AppendJSON(nil), nil
}

// Ready writes r and flushes the output.
func (w *Writer) Ready(r Ready) error {
	if w.format == Typed {
		return w.sink.Ready(r)
	}
	if w.format != JSON {
		w.note("ready: %s", cmp.Or(strings.Join(r.Hooks, ", "), "no hooks"))
		return w.Flush()
	}
	w.appendObject(struct {
		Type string `json:"type"`
		Time stamp  `json:"time"`
		Ready
	}{"ready", stamp(r.Time), r})
	return w.Flush()
}

// Lost writes l and flushes JSON output.
func (w *Writer) Lost(l Lost) error {
	if w.format == Typed {
		return w.sink.Lost(l)
	}
	if w.format != JSON {
		w.note("lost %d: %s", l.Lost, reasons(l.Reasons))
		return nil
	}
	w.appendObject(struct {
		Type string `json:"type"`
		Time stamp  `json:"time"`
		Lost
	}{"lost", stamp(l.Time), l})
	return w.Flush()
}

// Summary writes s and flushes the output. Text has a summary only if a counter is not zero.
func (w *Writer) Summary(s Summary) error {
	if w.format == Typed {
		return w.sink.Summary(s)
	}
	if w.format == JSON {
		w.appendObject(struct {
			Type string `json:"type"`
			Time stamp  `json:"time"`
			Summary
		}{"summary", stamp(s.Time), s})
		return w.Flush()
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if s.Lost > 0 {
		w.note("lost %d in total: %s", s.Lost, reasons(s.Reasons))
	}
	if counters := reasons(s.Counters); counters != "" {
		w.note("%s", counters)
	}
	return nil
}

func (w *Writer) note(format string, args ...any) {
	fmt.Fprintf(w.err, "%s: %s\n", w.name, fmt.Sprintf(format, args...))
}

func (w *Writer) appendObject(v any) {
	// No field of these structs can fail to encode.
	b, _ := json.Marshal(v)
	w.buf = append(append(w.buf, b...), '\n')
}

// reasons lists the counters that are not zero, by name: "buffer full 3, map full 1".
func reasons(counts map[string]uint64) string {
	var out []string
	for name, n := range counts {
		if n > 0 {
			out = append(out, fmt.Sprintf("%s %d", strings.ReplaceAll(name, "_", " "), n))
		}
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}
