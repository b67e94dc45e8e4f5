package output

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/value"
)

// Ready says that every hook is attached, and which they are. The help tags of this
// and the next types are the descriptions in their JSON Schemas.
type Ready struct {
	Type  string    `json:"type"`
	Time  time.Time `json:"time" help:"when it was written, wall time"`
	Tool  string    `json:"tool" help:"name of the tool"`
	Hooks []string  `json:"hooks" help:"hooks that are attached and the way that was taken to each, as open: tp_btf/sys_exit"`
}

// Lost says that events or counts were lost since the last one: how many, by
// reason, and what can be done.
type Lost struct {
	Type    string            `json:"type"`
	Time    time.Time         `json:"time" help:"when it was written, wall time"`
	Lost    uint64            `json:"lost" help:"events or counts lost since the last such line"`
	Reasons map[string]uint64 `json:"reasons" help:"these by reason"`
}

// Summary comes last.
type Summary struct {
	Type     string            `json:"type"`
	Time     time.Time         `json:"time" help:"when it was written, wall time"`
	Events   uint64            `json:"events" help:"rows that were printed, or values that histograms count"`
	Lost     uint64            `json:"lost" help:"events or counts lost in all"`
	Reasons  map[string]uint64 `json:"reasons,omitempty" help:"these by reason"`
	Counters map[string]uint64 `json:"counters,omitempty" help:"what else was counted"`
	Stats    any               `json:"stats,omitempty" help:"with --stats: what the run has cost"`
}

// stamp is a time with all nine digits, as rows have it.
type stamp time.Time

// MarshalJSON returns the time as a JSON string.
func (s stamp) MarshalJSON() ([]byte, error) {
	t := value.Time(time.Time(s).UnixNano())
	return t.AppendJSON(nil), nil
}

// Ready writes that the tool is ready, at once.
func (w *Writer) Ready(r Ready) error {
	if w.format != JSON {
		w.note("ready: %s", strings.Join(r.Hooks, ", "))
		return w.Flush()
	}
	w.appendObject(struct {
		Type string `json:"type"`
		Time stamp  `json:"time"`
		Ready
	}{"ready", stamp(r.Time), r})
	return w.Flush()
}

// Lost writes a loss, at once.
func (w *Writer) Lost(l Lost) error {
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

// Summary writes the end. Text has one only when there is something to say.
func (w *Writer) Summary(s Summary) error {
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
		w.note("lost %d in all: %s", s.Lost, reasons(s.Reasons))
	}
	if odd := reasons(s.Counters); odd != "" {
		w.note("%s", odd)
	}
	return nil
}

func (w *Writer) note(format string, args ...any) {
	fmt.Fprintf(w.err, "%s: %s\n", w.name, fmt.Sprintf(format, args...))
}

func (w *Writer) appendObject(v any) {
	// These structs have nothing that could not be encoded.
	b, _ := json.Marshal(v)
	w.buf = append(append(w.buf, b...), '\n')
}

// reasons lists what is not zero, by name: "buffer full 3, map full 1".
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
