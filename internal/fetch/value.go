package fetch

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/value"
)

// Values are the values fetched at one hit of a probe. They refer to the decoded bytes.
type Values struct {
	site *Site
	data []byte
	// symbols are the names of addresses, for the verbs %K and %U.
	symbols []string
}

// Decode decodes the bytes that fetch() wrote at the site.
func (s *Site) Decode(data []byte) Values { return Values{site: s, data: data} }

// NeedsSymbols reports whether values are addresses in the kernel or in a process, whose symbols the
// format shows.
func (p *Probe) NeedsSymbols() (kernel, user bool) {
	for i := range p.Items {
		kernel, user = kernel || p.as(i) == kernelSymbol, user || p.as(i) == userSymbol
	}
	return kernel, user
}

const kernelSymbol, userSymbol = "K", "U"

// Name sets the names of addresses for %K and %U.
func (v *Values) Name(kernel, user func(addr uint64) string) {
	v.symbols = make([]string, len(v.site.slots))
	for i := range v.site.slots {
		switch as := v.site.slots[i].as; {
		case !v.has(i):
		case as == kernelSymbol:
			v.symbols[i] = kernel(v.word(i))
		case as == userSymbol:
			v.symbols[i] = user(v.word(i))
		}
	}
}

// has reports whether a value could be read.
func (v *Values) has(i int) bool {
	s := &v.site.slots[i]
	end := s.Offset + 8
	if s.Text {
		end += s.Size
	}
	return len(v.data) >= end && binary.NativeEndian.Uint64(v.data)&(1<<i) == 0
}

// IsIncomplete reports whether a value could not be read.
func (v *Values) IsIncomplete() bool {
	for i := range v.site.slots {
		if !v.has(i) {
			return true
		}
	}
	return false
}

func (v *Values) word(i int) uint64 {
	return binary.NativeEndian.Uint64(v.data[v.site.slots[i].Offset:])
}

// text returns the bytes of a string, and whether it was truncated.
func (v *Values) text(i int) (b []byte, isCut bool) {
	s := &v.site.slots[i]
	n := int(min(v.word(i), uint64(s.Size)))
	b = v.data[s.Offset+8:][:n]
	if end := strings.IndexByte(string(b), 0); end >= 0 {
		b = b[:end]
	}
	array, isArray := btf.UnderlyingType(s.Type).(*btf.Array)
	isWhole := isArray && array.Nelems > 0 && int(array.Nelems) <= s.Size
	if n < s.Size || isWhole {
		return b, false
	}
	return b[:min(len(b), s.Size-2)], true
}

// appendValue appends a value as text or JSON.
func (v *Values) appendValue(b []byte, i int, isJSON bool) []byte {
	s := &v.site.slots[i]
	if s.Text {
		text, isCut := v.text(i)
		if isJSON {
			return value.AppendString(b, text)
		}
		b = append(value.AppendEscaped(append(b, '"'), text), '"')
		if isCut {
			b = append(b, "..."...)
		}
		return b
	}
	if i < len(v.symbols) && v.symbols[i] != "" {
		return quoted(b, v.symbols[i], isJSON)
	}
	n := v.word(i)
	switch t := btf.UnderlyingType(s.Type).(type) {
	case *btf.Enum:
		if name, ok := enumerator(t, n); ok && s.as == "" {
			return quoted(b, name, isJSON)
		}
		return strconv.AppendInt(b, int64(n), 10)
	case *btf.Pointer:
		return quoted(b, "0x"+strconv.FormatUint(n, 16), isJSON)
	case *btf.Int:
		return appendInt(b, t, n, s.as, isJSON)
	}
	return strconv.AppendUint(b, n, 10)
}

// integer returns a value for expressions, which only support int. Unsigned numbers above its maximum
// saturate, so that comparisons remain correct. Addresses keep their bits, so that they differ.
func integer(s *slot, n uint64) int {
	t, ok := btf.UnderlyingType(s.Type).(*btf.Int)
	if !ok || !isUnsigned(t, s.as) {
		return int(n)
	}
	return int(min(n&mask(t.Size), math.MaxInt))
}

// isUnsigned reports whether a number is shown as an unsigned decimal number.
func isUnsigned(t *btf.Int, as string) bool {
	switch {
	case strings.ContainsAny(as, "xXpKU"), as == "d", as == "i":
		return false
	}
	return as != "" || t.Encoding == btf.Unsigned
}

func appendInt(b []byte, t *btf.Int, n uint64, as string, isJSON bool) []byte {
	switch {
	case strings.ContainsAny(as, "xXpKU"):
		return quoted(b, "0x"+strconv.FormatUint(n&mask(t.Size), 16), isJSON)
	case as == "d" || as == "i" || as == "" && (t.Encoding == btf.Signed || t.Encoding == btf.Char):
		return strconv.AppendInt(b, int64(n), 10)
	case t.Encoding == btf.Bool:
		return strconv.AppendBool(b, n != 0)
	}
	return strconv.AppendUint(b, n&mask(t.Size), 10)
}

func mask(size uint32) uint64 {
	if size >= 8 {
		return math.MaxUint64
	}
	return 1<<(8*size) - 1
}

func quoted(b []byte, s string, isJSON bool) []byte {
	if isJSON {
		return value.AppendString(b, s)
	}
	return append(b, s...)
}

func enumerator(t *btf.Enum, n uint64) (string, bool) {
	for _, v := range t.Values {
		if v.Value&mask(t.Size) == n&mask(t.Size) {
			return v.Name, true
		}
	}
	return "", false
}

// AppendText appends the message of the user's format, or name=value for each value.
func (v *Values) AppendText(b []byte) []byte {
	if v.site == nil {
		return b
	}
	if format := v.site.Probe.Format; format != "" {
		return v.appendMessage(b, format)
	}
	for i := range v.site.slots {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(value.AppendEscaped(b, v.site.slots[i].Name), '=')
		if !v.has(i) {
			b = append(b, '?')
			continue
		}
		b = v.appendValue(b, i, false)
	}
	return b
}

// AppendJSON appends an object with the values that could be read. A string that is not UTF-8 is
// accompanied by NAME_base64 with the exact bytes. "cut" lists the names of truncated strings.
func (v *Values) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	var cut []string
	for i := range v.slots() {
		if !v.has(i) {
			continue
		}
		s := &v.site.slots[i]
		b = append(value.AppendString(comma(b), s.Name), ':')
		b = v.appendValue(b, i, true)
		text, isCut := v.untrusted(i)
		if isCut {
			cut = append(cut, s.Name)
		}
		if !utf8.Valid(text) {
			b = append(value.AppendString(comma(b), s.Name+"_base64"), ':')
			b = value.AppendBase64(b, text)
		}
	}
	if len(cut) > 0 {
		b = append(comma(b), `"cut":[`...)
		for _, name := range cut {
			b = value.AppendString(comma(b), name)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// untrusted returns the bytes of a string, or of the symbol of an address, and whether a string was
// truncated. It returns nothing for other values.
func (v *Values) untrusted(i int) (b []byte, isCut bool) {
	switch {
	case v.site.slots[i].Text:
		return v.text(i)
	case i < len(v.symbols):
		return []byte(v.symbols[i]), false
	}
	return nil, false
}

func comma(b []byte) []byte {
	if last := b[len(b)-1]; last == '{' || last == '[' {
		return b
	}
	return append(b, ',')
}

func (v *Values) slots() []slot {
	if v.site == nil {
		return nil
	}
	return v.site.slots
}

// Any returns the values by name, for --filter expressions.
func (v *Values) Any() any {
	out := map[string]any{}
	for i, s := range v.slots() {
		if !v.has(i) {
			continue
		}
		if s.Text {
			text, _ := v.text(i)
			out[s.Name] = string(text)
		} else if i < len(v.symbols) && v.symbols[i] != "" {
			out[s.Name] = v.symbols[i]
		} else {
			out[s.Name] = integer(&s, v.word(i))
		}
	}
	return out
}

// Schema returns the schema of an object.
func (v *Values) Schema() value.Schema { return value.Schema{Type: "object"} }

// Absent reports whether the site fetches nothing.
func (v *Values) Absent() bool {
	return len(v.slots()) == 0 && (v.site == nil || v.site.Probe.Format == "")
}
