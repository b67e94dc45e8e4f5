package value

import (
	"fmt"
	"time"
)

// Time is a wall time in ns since 1970. Events contain boot time (CLOCK_BOOTTIME), which
// internal/source converts when it reads them.
type Time uint64

func (v *Time) wall() time.Time { return time.Unix(0, int64(*v)) }

func (v *Time) AppendText(b []byte) []byte { return v.wall().AppendFormat(b, time.TimeOnly) }

func (v *Time) AppendJSON(b []byte) []byte {
	b = append(b, '"')
	b = v.wall().AppendFormat(b, "2006-01-02T15:04:05.000000000Z07:00")
	return append(b, '"')
}

// UTC is a wall time that text shows in UTC, with milliseconds.
type UTC Time

func (v *UTC) wall() time.Time { return time.Unix(0, int64(*v)).UTC() }

func (v *UTC) AppendText(b []byte) []byte { return v.wall().AppendFormat(b, "15:04:05.000") }

func (v *UTC) AppendJSON(b []byte) []byte {
	return append(v.wall().AppendFormat(append(b, '"'), "2006-01-02T15:04:05.000000000Z07:00"), '"')
}

func (v *UTC) Any() any       { return v.wall() }
func (v *UTC) Schema() Schema { return Schema{Type: "string", Format: "date-time"} }

func (v *Time) Any() any       { return v.wall() }
func (v *Time) Schema() Schema { return Schema{Type: "string", Format: "date-time"} }

// Epoch is a time that text shows in seconds since 1970, with microseconds. It is absent without Of.
type Epoch struct{ Of *Time }

func (v *Epoch) AppendText(b []byte) []byte {
	return fmt.Appendf(b, "%d.%06d", *v.Of/1e9, *v.Of%1e9/1e3)
}

func (v *Epoch) AppendJSON(b []byte) []byte { return v.AppendText(b) }
func (v *Epoch) Absent() bool               { return v.Of == nil }
func (v *Epoch) Any() any                   { return float64(*v.Of) / 1e9 }
func (v *Epoch) Schema() Schema             { return Schema{Type: "number"} }
