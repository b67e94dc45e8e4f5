package dnssnoop

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/corescope/corescope/internal/value"
)

// message is what a row needs of a DNS message.
type message struct {
	dnsmessage.Header
	name  name
	qtype string
	// answers are addresses and names, each terminated by a NUL byte.
	answers []byte
}

// headerSize is the size of a header, and the least size of a message.
const headerSize = 12

// parse reads a message of a sender that is not trusted. It stops at the first malformed or truncated
// answer. The parser of dnsmessage refuses names with a dot inside a label.
func parse(b []byte) (m message, ok bool) {
	var p dnsmessage.Parser
	var err error
	if m.Header, err = p.Start(b); err != nil {
		return m, false
	}
	questions, records := binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])
	at := headerSize
	for i := range questions {
		name, next, ok := nameAt(b, at)
		if !ok || next+4 > len(b) {
			return m, false
		}
		if i == 0 {
			m.name, m.qtype = name, typeOf(dnsmessage.Type(binary.BigEndian.Uint16(b[next:])))
		}
		at = next + 4
	}
	if m.Response {
		for range records {
			text, next, ok := answer(b, at)
			if !ok {
				break
			}
			if text != "" {
				m.answers = append(append(m.answers, text...), 0)
			}
			at = next
		}
	}
	return m, questions > 0
}

// answer returns the address or name of the resource record at this offset, "" if it is another one,
// and the offset of the next record.
func answer(b []byte, at int) (text string, next int, ok bool) {
	_, at, ok = nameAt(b, at)
	if !ok || at+10 > len(b) {
		return "", 0, false
	}
	kind, size := dnsmessage.Type(binary.BigEndian.Uint16(b[at:])), int(binary.BigEndian.Uint16(b[at+8:]))
	at += 10
	if next = at + size; next > len(b) {
		return "", 0, false
	}
	switch {
	case kind == dnsmessage.TypeA && size == 4, kind == dnsmessage.TypeAAAA && size == 16:
		addr, _ := netip.AddrFromSlice(b[at:next])
		return addr.Unmap().String(), next, true
	case kind == dnsmessage.TypeCNAME, kind == dnsmessage.TypePTR:
		name, end, ok := nameAt(b[:next], at)
		return string(name), next, ok && end == next
	}
	return "", next, true
}

// nameAt returns the name at this offset in the presentation format, and the offset after it.
func nameAt(b []byte, at int) (n name, next int, ok bool) {
	var text []byte
	size, first := 0, at
	for at < len(b) {
		head := int(b[at])
		switch head >> 6 {
		case 0:
			if at++; head == 0 {
				return nameOf(text), cmp.Or(next, at), true
			}
			if size += head + 1; size > 254 || at+head > len(b) {
				return "", 0, false
			}
			text = append(appendLabel(text, b[at:at+head]), '.')
			at += head
		case 3: // the rest of the name is at an earlier offset
			if at+1 >= len(b) {
				return "", 0, false
			}
			next = cmp.Or(next, at+2)
			at = head&0x3f<<8 | int(b[at+1])
			if at >= first {
				return "", 0, false
			}
			first = at
		default:
			return "", 0, false
		}
	}
	return "", 0, false
}

// nameOf returns the name without its last dot.
func nameOf(text []byte) name {
	if len(text) == 0 {
		return "."
	}
	return name(text[:len(text)-1])
}

// appendLabel appends a label in the presentation format (RFC 4343, section 2.1).
func appendLabel(text, label []byte) []byte {
	for _, c := range label {
		switch {
		case c == '.' || c == '\\':
			text = append(text, '\\', c)
		case c <= ' ' || c > '~':
			text = fmt.Appendf(text, `\%03d`, c)
		default:
			text = append(text, c)
		}
	}
	return text
}

// name is a domain name in the presentation format, which is the same in all outputs: it has only
// printable ASCII characters.
type name string

func (v *name) AppendText(b []byte) []byte { return append(b, *v...) }
func (v *name) AppendJSON(b []byte) []byte { return value.AppendString(b, *v) }
func (v *name) Any() any                   { return string(*v) }
func (v *name) Schema() value.Schema       { return value.Schema{Type: "string"} }
func (v *name) Absent() bool               { return *v == "" }

// list is a list of addresses and names, each terminated by a NUL byte.
type list struct{ value.List }

func (v *list) AppendText(b []byte) []byte {
	for i, s := 0, v.List; len(s) > 0; i++ {
		word, rest, _ := bytes.Cut(s, []byte{0})
		if i > 0 {
			b = append(b, ' ')
		}
		b, s = append(b, word...), rest
	}
	return b
}

func (v *list) AppendCell(b []byte) []byte { return v.AppendJSON(b) }

// typeOf returns the name of a type as in zone files, and TYPE with a number for others.
func typeOf(t dnsmessage.Type) string {
	switch t {
	case 35:
		return "NAPTR"
	case 43:
		return "DS"
	case 48:
		return "DNSKEY"
	case 52:
		return "TLSA"
	case 64:
		return "SVCB"
	case 65:
		return "HTTPS"
	case 255:
		return "ANY"
	case 257:
		return "CAA"
	}
	if name, ok := strings.CutPrefix(t.String(), "Type"); ok {
		return name
	}
	return "TYPE" + strconv.Itoa(int(t))
}

// messages returns the messages that a call has transferred. With TCP, the length precedes each,
// unless another call has transferred it. Then the data begins with a header for one question; a
// message with its length would have the bits of that number in its flags, which none has.
func messages(b []byte, tcp bool) (all [][]byte) {
	if !tcp || len(b) < headerSize || binary.BigEndian.Uint16(b[4:]) == 1 {
		return [][]byte{b}
	}
	for len(b) > 2 {
		end := min(2+int(binary.BigEndian.Uint16(b)), len(b))
		all, b = append(all, b[2:end]), b[end:]
	}
	return all
}

// rcode is the result of an answer, absent without one.
type rcode struct {
	dnsmessage.RCode
	answered bool
}

func (v *rcode) name() string {
	names := []string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"}
	if int(v.RCode) < len(names) {
		return names[v.RCode]
	}
	return "RCODE" + strconv.Itoa(int(v.RCode))
}

func (v *rcode) Absent() bool               { return !v.answered }
func (v *rcode) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *rcode) AppendJSON(b []byte) []byte { return value.AppendString(b, v.name()) }
func (v *rcode) Schema() value.Schema       { return value.Schema{Type: "string"} }

func (v *rcode) Any() any {
	if v.Absent() {
		return ""
	}
	return v.name()
}
