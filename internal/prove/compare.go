package prove

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Result is what a comparison shows.
type Result string

// The results of a column, of a tool and of a run.
const (
	Proved       Result = "proved"
	Contradicted Result = "contradicted"
	NotProvable  Result = "not provable here"
)

// Column is the result of one column of a tool.
type Column struct {
	Column string `json:"column" help:"key of the column in the output of the tool; rows is the number of rows"`
	Result Result `json:"result" help:"proved, contradicted or not provable here"`
	Values int    `json:"values" help:"number of values that were compared"`
	Want   string `json:"want,omitempty" help:"what the reference says; of a contradicted column the first value that differs"`
	Got    string `json:"got,omitempty" help:"what the tool says in its place"`
	Source string `json:"source,omitempty" help:"the reference, where it is not the workload's own log"`
	Reason string `json:"reason,omitempty" help:"why the column is not provable here"`
}

// row is a JSON object of the tool's output, or what it must contain. The numbers of both are json.Number.
// In a wanted row, an object with min and max is a range, and one with any lists the possible values.
type row map[string]any

// log is what a workload did while the tool observed it.
type log struct {
	Rows   []row   `json:"rows"`
	Totals []total `json:"totals"`
	// Unknown are reasons why columns have no wanted value.
	Unknown map[string]string `json:"unknown"`
	Error   string            `json:"error"`
	NotHere string            `json:"not_here"` // why the workload is not possible on this machine
}

// total is the sum of a column over all rows, by a reference that is independent of the workload's log.
type total struct {
	Column string `json:"column"`
	Want   any    `json:"want"`
	Source string `json:"source"`
}

// losses are the events that the tool reports as lost, by loss reason.
type losses map[string]int

func (l losses) sum() int {
	n := 0
	for _, v := range l {
		n += v
	}
	return n
}

func (l losses) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if l[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, l[name]))
		}
	}
	return strings.Join(parts, ", ")
}

// compare compares the rows of a tool with the log of the workload, column by column.
func compare(want *log, got []row, lost losses) []Column {
	pairs, unexpected := align(want.Rows, got)
	columns := []Column{compareCount(len(want.Rows), len(got), pairs, unexpected, lost)}
	for _, key := range keysOf(want.Rows) {
		columns = append(columns, compareColumn(key, pairs, lost))
	}
	for _, t := range want.Totals {
		columns = append(columns, compareTotal(t, got, lost))
	}
	return append(columns, unknowns(want, got)...)
}

// compareCount compares the numbers of rows. Events that the tool reports as lost can be missing.
func compareCount(want, got int, pairs []pair, unexpected row, lost losses) Column {
	c := Column{Column: "rows", Result: Proved, Values: got, Want: strconv.Itoa(want), Got: strconv.Itoa(got)}
	switch {
	case got > want:
		c.Result, c.Got = Contradicted, c.Got+", one too many: "+text(unexpected)
	case got < want && got+lost.sum() < want:
		c.Result, c.Got = Contradicted, fmt.Sprintf("%d and %d lost, one missing: %s", got, lost.sum(), text(missing(pairs)))
	case got < want:
		c.Result, c.Reason = NotProvable, "events were lost: "+lost.String()
	}
	return c
}

func missing(pairs []pair) row {
	for _, p := range pairs {
		if p.got == nil {
			return p.want
		}
	}
	return nil
}

// pair is a wanted row and the row of the tool in its place, nil if there is none.
type pair struct{ want, got row }

// window is how far rows can be from their place: buffers of several CPUs are read in turn.
const window = 64

// align finds the row for each wanted row: near its place one that agrees in all columns; of the rest, the one
// that agrees in most. It also returns a row that has no place.
func align(want, got []row) (pairs []pair, unexpected row) {
	rest := slices.Clone(got)
	pairs = make([]pair, len(want))
	for i, w := range want {
		pairs[i].want = w
		at := slices.IndexFunc(rest[:min(window, len(rest))], func(g row) bool { return agreement(w, g) == len(w) })
		if at >= 0 {
			pairs[i].got = rest[at]
			rest = slices.Delete(rest, at, at+1)
		}
	}
	for i, p := range pairs {
		if p.got != nil || len(rest) == 0 {
			continue
		}
		at := bestOf(p.want, rest[:min(window, len(rest))])
		pairs[i].got = rest[at]
		rest = slices.Delete(rest, at, at+1)
	}
	if len(rest) > 0 {
		unexpected = rest[0]
	}
	return pairs, unexpected
}

// agreement returns the number of wanted columns in which a row agrees.
func agreement(want, got row) int {
	n := 0
	for key, v := range want {
		if agrees(v, got[key]) {
			n++
		}
	}
	return n
}

// bestOf returns the first row that agrees with w in most columns.
func bestOf(w row, rows []row) int {
	best, most := 0, -1
	for i, g := range rows {
		if n := agreement(w, g); n > most {
			best, most = i, n
		}
	}
	return best
}

func keysOf(rows []row) []string {
	keys := map[string]bool{}
	for _, r := range rows {
		for k := range r {
			keys[k] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// compareColumn compares the values of a column. A sum can be too small if events were lost.
func compareColumn(key string, pairs []pair, lost losses) Column {
	c := Column{Column: key, Result: Proved}
	var shares []float64
	for _, p := range pairs {
		want, ok := p.want[key]
		if !ok || p.got == nil {
			continue
		}
		got := p.got[key]
		if !agrees(want, got) {
			c.Result, c.Want, c.Got = Contradicted, text(want), text(got)
			if lost.sum() > 0 && less(got, want) {
				c.Result, c.Reason = NotProvable, "events were lost: "+lost.String()
			}
			return c
		}
		if share, ok := shareOf(want, got); ok {
			shares = append(shares, share)
		}
		c.Values++
		c.Want, c.Got = text(want), text(got)
	}
	if c.Values == 0 {
		c.Result, c.Want, c.Got, c.Reason = NotProvable, "", "", "no row of the tool could be compared"
	}
	return checkScale(c, shares)
}

// leastShare is the least share that some duration of a column must have in the time that the workload measured
// around its call. A wrong unit makes all shares a thousandth. If the workload has to wait for a CPU, most
// shares are small, but not that of its shortest call.
const leastShare = 1.0 / 100

// enoughShares is the number of calls of which at least one did not wait.
const enoughShares = 20

// checkScale checks durations of which only the greatest possible value is known.
func checkScale(c Column, shares []float64) Column {
	if c.Result != Proved || len(shares) < enoughShares {
		return c
	}
	if most := slices.Max(shares); most < leastShare {
		c.Result = Contradicted
		c.Want = fmt.Sprintf("at least one value of %g of the time around its call", leastShare)
		c.Got = fmt.Sprintf("at most %.5f", most)
	}
	return c
}

// shareOf returns a value's share in the maximum of a range that has no minimum.
func shareOf(want, got any) (float64, bool) {
	limits, ok := want.(map[string]any)
	if !ok || limits["min"] != nil || limits["max"] == nil {
		return 0, false
	}
	most, _ := number(limits["max"])
	value, ok := number(got)
	return value / most, ok && most > 0
}

// compareTotal compares the sum of a column over all rows.
func compareTotal(t total, got []row, lost losses) Column {
	sum := 0.0
	for _, r := range got {
		n, _ := number(r[t.Column])
		sum += n
	}
	if t.Column == "rows" {
		sum = float64(len(got))
	}
	c := Column{Column: "sum of " + t.Column, Result: Proved, Values: 1, Want: text(t.Want), Source: t.Source}
	n := json.Number(strconv.FormatFloat(sum, 'f', -1, 64))
	c.Got = text(n)
	if !agrees(t.Want, n) {
		c.Result = Contradicted
		if lost.sum() > 0 && less(n, t.Want) {
			c.Result, c.Reason = NotProvable, "events were lost: "+lost.String()
		}
	}
	return c
}

// unknowns lists the columns of the tool that the workload says nothing about.
func unknowns(want *log, got []row) []Column {
	known := keysOf(want.Rows)
	var columns []Column
	for _, key := range keysOf(got) {
		if slices.Contains(known, key) || key == "type" || key == rowsSummed || strings.HasSuffix(key, "_base64") {
			continue
		}
		reason := want.Unknown[key]
		if reason == "" {
			reason = "the workload does not know this value"
		}
		columns = append(columns, Column{Column: key, Result: NotProvable, Reason: reason})
	}
	return columns
}

// agrees reports whether a value is the wanted one, or in the wanted range.
func agrees(want, got any) bool {
	switch w := want.(type) {
	case map[string]any:
		if list, ok := w["any"].([]any); ok {
			return slices.ContainsFunc(list, func(v any) bool { return agrees(v, got) })
		}
		if members, ok := w["object"].(map[string]any); ok {
			return hasMembers(members, got)
		}
		return inRange(w, got)
	case []any:
		g, ok := got.([]any)
		return ok && slices.EqualFunc(w, g, agrees)
	case json.Number:
		g, ok := got.(json.Number)
		return ok && sameNumber(w, g)
	case nil:
		return got == nil
	}
	return want == got
}

func hasMembers(members map[string]any, got any) bool {
	g, _ := got.(map[string]any)
	for k, v := range members {
		if has, ok := g[k]; !ok || !agrees(v, has) {
			return false
		}
	}
	return true
}

func sameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, errX := a.Float64()
	y, errY := b.Float64()
	// Means are rounded to three digits.
	return errX == nil && errY == nil && strings.ContainsAny(string(a)+string(b), ".eE") && math.Abs(x-y) < 0.001
}

func inRange(limits map[string]any, got any) bool {
	n, ok := number(got)
	if !ok {
		return false
	}
	if least, ok := number(limits["min"]); ok && n < least {
		return false
	}
	most, ok := number(limits["max"])
	return !ok || n <= most
}

// less reports whether a value is less than the wanted one, or than the wanted range.
func less(got, want any) bool {
	if limits, ok := want.(map[string]any); ok {
		want = limits["min"]
	}
	g, okG := number(got)
	w, okW := number(want)
	return okG && okW && g < w
}

func number(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}

// longest is the length of a value in messages.
const longest = 200

// text returns a value for a message.
func text(v any) string {
	if limits, ok := v.(map[string]any); ok && (limits["min"] != nil || limits["max"] != nil) {
		return rangeText(limits)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(b) > longest {
		return strings.ToValidUTF8(string(b[:longest]), "") + "..."
	}
	return string(b)
}

func rangeText(limits map[string]any) string {
	switch {
	case limits["min"] == nil:
		return fmt.Sprintf("at most %v", limits["max"])
	case limits["max"] == nil:
		return fmt.Sprintf("at least %v", limits["min"])
	}
	return fmt.Sprintf("%v to %v", limits["min"], limits["max"])
}

// keep removes other columns from the wanted rows.
func (l *log) keep(columns []string) {
	for _, r := range l.Rows {
		maps.DeleteFunc(r, func(k string, _ any) bool { return len(columns) > 0 && !slices.Contains(columns, k) })
	}
}
