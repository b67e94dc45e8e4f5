package source

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// histReport writes the histograms of one interval.
type histReport struct {
	*tool.Session
	time  value.Time
	stamp bool
	// percentiles, if set, are shown instead of bars and buckets.
	percentiles Percentiles
	name        string // of the values
	slots       string // Hists.Slots
}

// begin writes the beginning of a report: in text an empty line, and the time with --timestamp; in
// CSV the header, once.
func (r *histReport) begin(key []column.Column) {
	r.Out.Begin(r.time)
	r.Out.Append(func(b []byte) []byte {
		switch r.Out.Format() {
		case output.Text:
			b = append(b, '\n')
			if r.stamp {
				b = append(r.time.AppendText(b), '\n')
			}
			if r.percentiles != nil && !r.HasNoHeader() {
				b = r.appendPercentileTitles(b, key)
			}
		case output.CSV:
			if r.Shown == 1 && !r.HasNoHeader() {
				names := append(append([]string{"time"}, column.Keys(key)...), r.cells()...)
				b = append(append(b, strings.Join(names, ",")...), '\n')
			}
		}
		return b
	})
}

// cells returns the names of the columns of CSV after those of the key.
func (r *histReport) cells() []string {
	if r.percentiles == nil {
		return []string{"unit", "lo", "hi", "count"}
	}
	names := []string{"unit", "count"}
	for _, p := range r.percentiles {
		names = append(names, "p"+p)
	}
	return names
}

func (r *histReport) write(key []column.Column, h *histogram.Histogram) error {
	if r.Out.Format() == output.Typed {
		return r.Out.Histogram(r.time, key, h)
	}
	r.Out.Append(func(b []byte) []byte {
		if r.percentiles != nil {
			return r.appendInFormat(b, key, h)
		}
		switch r.Out.Format() {
		case output.JSON:
			return output.AppendHistogram(b, r.time, key, h)
		case output.CSV:
			return r.appendCSV(b, key, h)
		}
		return r.appendBars(appendTitled(b, key), h)
	})
	return nil
}

// appendInFormat appends the percentiles in the format of the output.
func (r *histReport) appendInFormat(b []byte, key []column.Column, h *histogram.Histogram) []byte {
	switch r.Out.Format() {
	case output.JSON:
		return r.appendPercentilesJSON(b, key, h)
	case output.CSV:
		return r.appendPercentileCells(b, key, h)
	}
	return r.appendPercentiles(b, key, h)
}

// appendKey appends the text of a column of the key. Titles have no empty values.
func appendKey(b []byte, c *column.Column) []byte {
	if c.Absent() {
		return append(b, "n/a"...)
	}
	return c.AppendText(b)
}

// appendTitled appends a title as in libbpf-tools ("disk = vda<tab>flags = Read"), and the stacks.
func appendTitled(b []byte, key []column.Column) []byte {
	var stacks []value.Lines
	for i := range key {
		if stack, ok := key[i].Value.(value.Lines); ok {
			stacks = append(stacks, stack)
			continue
		}
		switch {
		case i == 0:
			b = append(b, '\n')
		case key[i].Bare:
			b = append(b, ' ')
		default:
			b = append(b, '\t')
		}
		if !key[i].Bare {
			b = append(append(b, key[i].Key...), " = "...)
		}
		b = appendKey(b, &key[i])
	}
	if len(key) > 0 {
		b = append(b, '\n')
	}
	for _, stack := range stacks {
		b = stack.AppendLines(b)
	}
	return b
}

func (r *histReport) appendBars(b []byte, h *histogram.Histogram) []byte {
	if r.slots != "" {
		return h.AppendSlots(b, r.slots)
	}
	return h.AppendNamed(b, r.name)
}

// appendCSV appends a line for each bucket: time, key, unit, lo, hi, count.
func (r *histReport) appendCSV(b []byte, key []column.Column, h *histogram.Histogram) []byte {
	for _, bucket := range h.Buckets() {
		b = r.appendCSVKey(b, key, h)
		for _, ns := range []uint64{bucket.Lo, bucket.Hi} {
			b = strconv.AppendFloat(append(b, ','), float64(ns)/float64(max(1, h.Unit())), 'f', -1, 64)
		}
		b = strconv.AppendUint(append(b, ','), bucket.Count, 10)
		b = append(b, '\n')
	}
	return b
}

// appendCSVKey appends the first cells of a line: time, key and unit.
func (r *histReport) appendCSVKey(b []byte, key []column.Column, h *histogram.Histogram) []byte {
	b = append(b, bytes.Trim(r.time.AppendJSON(nil), `"`)...)
	for i := range key {
		b = output.AppendCell(append(b, ','), &key[i])
	}
	return append(append(b, ','), h.Unit().String()...)
}
