package output

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/value"
)

// rows formats the columns of a row. It does not allocate memory per row.
type rows struct {
	format Format
	cols   []column.Column
	keys   [][]byte // `,"key":` of each column
	b64    [][]byte // `,"key_base64":` of each column
	schema []value.Schema
	cell   []byte
	below  []value.Lines // lines below the row in text
}

func newRows(format Format, cols []column.Column) *rows {
	r := &rows{format: format, cols: cols}
	if format == Text {
		r.separateLines()
	}
	for _, c := range r.cols {
		r.keys = append(r.keys, jsonKey(c.Key))
		r.b64 = append(r.b64, jsonKey(c.Key+"_base64"))
		r.schema = append(r.schema, c.Schema())
	}
	return r
}

// separateLines moves the columns that text shows below the row from cols to below. Without such
// columns, cols remains the slice of the caller, who can still mark columns as Lacking.
func (r *rows) separateLines() {
	hasLines := func(c column.Column) bool { _, ok := c.Value.(value.Lines); return ok }
	if !slices.ContainsFunc(r.cols, hasLines) {
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

// Header returns the line of column names. It is empty for JSON.
func Header(format Format, cols []column.Column) string {
	return string(newRows(format, cols).appendHeader(nil))
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
		if len(r.cell) == 0 { // an empty cell would shift the next ones for programs that split at spaces
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

// headers returns the cells of the line of column names in text.
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

// appendFields appends `,"key":value` for each column that is present in the row.
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

// AppendObject appends a JSON object with the columns of the row.
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

// appendPlain appends the content of a CSV cell: numbers and times as in JSON, strings escaped as in
// text, and lists of strings as a JSON array of escaped strings.
func appendPlain(b []byte, c *column.Column, s *value.Schema) []byte {
	if cell, ok := c.Value.(value.Cell); ok {
		return cell.AppendCell(b)
	}
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
	for _, c := range cell {
		if c == '"' {
			b = append(b, '"')
		}
		b = append(b, c)
	}
	return append(b, '"')
}
