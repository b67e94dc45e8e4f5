package output

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/value"
)

// rows renders one row's columns in one format, without allocating.
type rows struct {
	format Format
	cols   []column.Column
	keys   [][]byte // `,"key":` of each column
	b64    [][]byte // `,"key_base64":` of each column
	schema []value.Schema
	cell   []byte
	below  []value.Lines // what text shows below the row
}

func newRows(format Format, cols []column.Column) *rows {
	r := &rows{format: format, cols: cols}
	if format == Text {
		r.takeBelow()
	}
	for _, c := range r.cols {
		r.keys = append(r.keys, jsonKey(c.Key))
		r.b64 = append(r.b64, jsonKey(c.Key+"_base64"))
		r.schema = append(r.schema, c.Schema())
	}
	return r
}

// takeBelow takes what is shown below the row out of its columns. Where there is none
// they stay the caller's, who may still learn that the kernel lacks one.
func (r *rows) takeBelow() {
	isBelow := func(c column.Column) bool { _, ok := c.Value.(value.Lines); return ok }
	if !slices.ContainsFunc(r.cols, isBelow) {
		return
	}
	var cells []column.Column
	for _, c := range r.cols {
		if lines, ok := c.Value.(value.Lines); ok {
			r.below = append(r.below, lines)
		} else {
			cells = append(cells, c)
		}
	}
	r.cols = cells
}

func jsonKey(key string) []byte {
	return append(value.AppendString([]byte{','}, key), ':')
}

func (r *rows) appendHeader(b []byte) []byte {
	switch r.format {
	case Text:
		for i, c := range r.cols {
			b = r.appendCell(b, i, []byte(c.Header))
		}
	case CSV:
		for i, c := range r.cols {
			b = appendCSV(b, i, []byte(c.Key))
		}
	default:
		return b
	}
	return append(b, '\n')
}

func (r *rows) appendRow(b []byte, kind string) []byte {
	switch r.format {
	case JSON:
		return r.appendJSON(b, kind)
	case CSV:
		return r.appendCSVRow(b)
	}
	return r.appendText(b)
}

func (r *rows) appendText(b []byte) []byte {
	for i := range r.cols {
		c := &r.cols[i]
		r.cell = r.cell[:0]
		switch {
		case c.Lacking:
			r.cell = append(r.cell, "n/a"...)
		case !c.Absent():
			r.cell = c.AppendText(r.cell)
		}
		if len(r.cell) == 0 { // the next column must not take this one's place
			r.cell = append(r.cell, '-')
		}
		b = r.appendCell(b, i, r.cell)
	}
	b = append(b, '\n')
	for _, lines := range r.below {
		b = lines.AppendLines(b)
	}
	return b
}

// headers are the cells of the line of column names in text.
func (r *rows) headers() []string {
	var cells []string
	for i := range r.cols {
		cells = append(cells, string(r.appendPadded(nil, i, []byte(r.cols[i].Header))))
	}
	return cells
}

func (r *rows) appendCell(b []byte, i int, cell []byte) []byte {
	if i > 0 {
		b = append(b, ' ')
	}
	return r.appendPadded(b, i, cell)
}

func (r *rows) appendPadded(b []byte, i int, cell []byte) []byte {
	c := &r.cols[i]
	pad := c.Width - utf8.RuneCount(cell)
	if c.Right {
		return append(appendSpaces(b, pad), cell...)
	}
	b = append(b, cell...)
	if i == len(r.cols)-1 {
		return b
	}
	return appendSpaces(b, pad)
}

const spaces = "                                                                "

func appendSpaces(b []byte, n int) []byte {
	for n > len(spaces) {
		b, n = append(b, spaces...), n-len(spaces)
	}
	if n > 0 {
		b = append(b, spaces[:n]...)
	}
	return b
}

func (r *rows) appendJSON(b []byte, kind string) []byte {
	b = append(b, `{"type":`...)
	b = value.AppendString(b, kind)
	b = r.appendFields(b)
	return append(b, '}', '\n')
}

// appendFields appends `,"key":value` for each column that the row has.
func (r *rows) appendFields(b []byte) []byte {
	for i := range r.cols {
		c := &r.cols[i]
		if c.Lacking {
			b = append(append(b, r.keys[i]...), "null"...)
			continue
		}
		if c.Absent() {
			continue
		}
		b = append(b, r.keys[i]...)
		b = c.AppendJSON(b)
		if e, ok := c.Value.(value.Exact); ok && !e.Valid() {
			b = append(b, r.b64[i]...)
			b = e.AppendBase64(b)
		}
	}
	return b
}

// AppendObject appends the JSON object of the row's columns.
func AppendObject(b []byte, cols []column.Column) []byte {
	b = append(b, '{')
	start := len(b)
	b = newRows(JSON, cols).appendFields(b)
	if len(b) > start {
		b = append(b[:start], b[start+1:]...) // the first comma
	}
	return append(b, '}')
}

func (r *rows) appendCSVRow(b []byte) []byte {
	start := len(b)
	for i := range r.cols {
		r.cell = r.cell[:0]
		if c := &r.cols[i]; !c.Lacking && !c.Absent() {
			r.cell = appendPlain(r.cell, c, &r.schema[i])
		}
		b = appendCSV(b, i, r.cell)
	}
	if len(b) == start {
		b = append(b, `""`...) // readers skip empty lines
	}
	return append(b, '\n')
}

// AppendCell appends one column as a CSV cell.
func AppendCell(b []byte, c *column.Column) []byte {
	if c.Absent() {
		return b
	}
	s := c.Schema()
	return appendCSV(b, 0, appendPlain(nil, c, &s))
}

// appendPlain appends a cell for machines: numbers and times as in JSON, strings
// escaped as in text.
func appendPlain(b []byte, c *column.Column, s *value.Schema) []byte {
	if s.Format == "date-time" {
		start := len(b)
		b = c.AppendJSON(b)
		return append(b[:start], b[start+1:len(b)-1]...) // without its quotes
	}
	if s.Type == "string" || s.Type == "array" {
		return c.AppendText(b)
	}
	return c.AppendJSON(b)
}

func appendCSV(b []byte, i int, cell []byte) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	if !bytes.ContainsAny(cell, ",\"\r\n") {
		return append(b, cell...)
	}
	b = append(b, '"')
	b = append(b, bytes.ReplaceAll(cell, []byte(`"`), []byte(`""`))...)
	return append(b, '"')
}
