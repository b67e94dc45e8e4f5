package remote

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/corescope/corescope/internal/output"
)

// unit is output of one host that stays together: a line of JSON, or lines of text.
type unit struct {
	host    int
	time    int64 // wall time of the host in ns, 0 if it is unknown
	arrived time.Time
	text    []byte
}

// merger sorts units of several hosts by time. A unit waits until each other host has delivered one that is
// as late, but not longer than the delay.
type merger struct {
	delay   time.Duration
	pending []unit  // sorted by time; units of equal times in order of arrival
	latest  []int64 // by host; the time of the last unit
	ended   []bool  // by host
}

func newMerger(hosts int, delay time.Duration) *merger {
	return &merger{delay: delay, latest: make([]int64, hosts), ended: make([]bool, hosts)}
}

// add adds a unit. The units of one host keep their order: a unit is not sorted before an earlier one.
func (m *merger) add(u unit) {
	u.time = max(u.time, m.latest[u.host])
	m.latest[u.host] = u.time
	i, _ := slices.BinarySearchFunc(m.pending, u.time+1, func(p unit, t int64) int { return cmp.Compare(p.time, t) })
	m.pending = slices.Insert(m.pending, i, u)
}

// end notes that a host delivers nothing more.
func (m *merger) end(host int) { m.ended[host] = true }

// due returns the units that can be written at this time, in order.
func (m *merger) due(now time.Time) []unit {
	horizon := int64(1<<63 - 1)
	for host, t := range m.latest {
		if !m.ended[host] {
			horizon = min(horizon, t)
		}
	}
	n := 0
	for i, u := range m.pending {
		if u.time <= horizon || now.Sub(u.arrived) >= m.delay {
			n = i + 1
		}
	}
	due := slices.Clone(m.pending[:n])
	m.pending = slices.Delete(m.pending, 0, n)
	return due
}

// appendJSON appends a line with the name of the host as its first member, label. It returns the time of the
// line too. A line that is not an object is kept as the member "text" of an object of type "invalid".
func appendJSON(b, line []byte, label, host string) (_ []byte, t int64) {
	line = bytes.TrimSpace(line)
	var object struct {
		Time time.Time `json:"time"`
	}
	name, _ := json.Marshal(host)
	b = fmt.Appendf(b, "{%q:%s", label, name)
	if len(line) < 2 || line[0] != '{' || json.Unmarshal(line, &object) != nil {
		text, _ := json.Marshal(string(line))
		return append(append(append(b, `,"type":"invalid","text":`...), text...), "}\n"...), 0
	}
	if line[1] != '}' {
		b = append(b, ',')
	}
	if !object.Time.IsZero() {
		t = object.Time.UnixNano()
	}
	return append(append(b, line[1:]...), '\n'), t
}

// splitStamp removes the mark with the time (output.Options.Stamps) from a line of text. Lines without one
// belong to the unit of the line before: their time is 0.
func splitStamp(line []byte) (t int64, text []byte) {
	stamp, ok := bytes.CutPrefix(line, []byte(output.StampBegin))
	if !ok {
		return 0, line
	}
	stamp, text, ok = bytes.Cut(stamp, []byte(output.StampEnd))
	t, err := strconv.ParseInt(string(stamp), 10, 64)
	if !ok || err != nil {
		return 0, line
	}
	return t, text
}
