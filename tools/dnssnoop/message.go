package dnssnoop

import (
	"encoding/binary"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/corescope/corescope/internal/value"
)

// message is what a row needs of a DNS message.
type message struct {
	dnsmessage.Header
	name  value.Name
	qtype string
	// answers are addresses and names, each terminated by a NUL byte.
	answers []byte
}

// parse reads a message of a sender that is not trusted. It stops at the first malformed or truncated
// answer.
func parse(b []byte, answers []byte) (m message, ok bool) {
	var p dnsmessage.Parser
	var err error
	if m.Header, err = p.Start(b); err != nil {
		return m, false
	}
	q, err := p.Question()
	if err != nil || p.SkipAllQuestions() != nil {
		return m, false
	}
	m.name, m.qtype = nameOf(q.Name), typeOf(q.Type)
	for m.answers = answers; m.Response; {
		text, err := answer(&p)
		if err != nil {
			break
		}
		if text != "" {
			m.answers = append(append(m.answers, text...), 0)
		}
	}
	return m, true
}

// answer returns the next address or name of an answer, "" if it is another one.
func answer(p *dnsmessage.Parser) (string, error) {
	h, err := p.AnswerHeader()
	if err != nil {
		return "", err
	}
	switch h.Type {
	case dnsmessage.TypeA:
		r, err := p.AResource()
		addr := value.Addr{10: 0xff, 11: 0xff, 12: r.A[0], 13: r.A[1], 14: r.A[2], 15: r.A[3]}
		return addr.IP().String(), err
	case dnsmessage.TypeAAAA:
		r, err := p.AAAAResource()
		addr := value.Addr(r.AAAA)
		return addr.IP().String(), err
	case dnsmessage.TypeCNAME:
		r, err := p.CNAMEResource()
		return string(nameOf(r.CNAME)), err
	case dnsmessage.TypePTR:
		r, err := p.PTRResource()
		return string(nameOf(r.PTR)), err
	}
	return "", p.SkipAnswer()
}

// nameOf returns a name without its last dot, and without NUL bytes, which end an element of a list.
func nameOf(n dnsmessage.Name) value.Name {
	s := strings.TrimSuffix(n.String(), ".")
	if s == "" {
		s = "."
	}
	return value.Name(strings.ReplaceAll(s, "\x00", `\0`))
}

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

// body returns the message without its length, which precedes it with TCP if it was not transferred
// separately.
func body(b []byte, tcp bool) []byte {
	if tcp && len(b) > 2 && int(binary.BigEndian.Uint16(b)) >= len(b)-2 && binary.BigEndian.Uint16(b) >= 12 {
		if m, ok := parse(b[2:], nil); ok && m.name != "" {
			return b[2:]
		}
	}
	return b
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
