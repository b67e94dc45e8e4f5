package tcpconnect

import (
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/corescope/corescope/internal/value"
)

// namesKept is how many addresses are known by name for sure; the older of twice as many
// are forgotten.
const namesKept = 1 << 16

// names are what addresses were looked up by, as processes were told.
type names struct{ young, old map[lookup]answer }

// lookup is what a process was told of an address, or any process where pid is 0.
type lookup struct {
	pid  uint32
	addr netip.Addr
}

type answer struct {
	name value.Name
	at   value.Time
}

func newNames() *names { return &names{young: map[lookup]answer{}} }

// find returns the name that the process knows the address by, or else what any was told
// last, and when; "" if there is none.
func (n *names) find(pid uint32, addr netip.Addr) (value.Name, value.Time) {
	for _, key := range []lookup{{pid, addr}, {0, addr}} {
		for _, of := range []map[lookup]answer{n.young, n.old} {
			if a, ok := of[key]; ok {
				return a.name, a.at
			}
		}
	}
	return "", 0
}

// learn reads an answer of DNS that a process got. What is wrong in it, or cut off, ends
// it: who sent it is not known.
func (n *names) learn(pid uint32, at value.Time, message []byte) {
	var p dnsmessage.Parser
	if h, err := p.Start(message); err != nil || !h.Response {
		return
	}
	question, err := p.Question()
	if err != nil || p.SkipAllQuestions() != nil {
		return
	}
	a := answer{value.Name(strings.TrimSuffix(question.Name.String(), ".")), at}
	for addr, ok := nextAddress(&p); ok; addr, ok = nextAddress(&p) {
		n.put(lookup{pid, addr}, a)
		n.put(lookup{0, addr}, a)
	}
}

// nextAddress passes over answers that are none, as names that stand for others.
func nextAddress(p *dnsmessage.Parser) (netip.Addr, bool) {
	for {
		h, err := p.AnswerHeader()
		if err != nil {
			return netip.Addr{}, false
		}
		switch h.Type {
		case dnsmessage.TypeA:
			r, err := p.AResource()
			return netip.AddrFrom4(r.A), err == nil
		case dnsmessage.TypeAAAA:
			r, err := p.AAAAResource()
			return netip.AddrFrom16(r.AAAA).Unmap(), err == nil
		}
		if p.SkipAnswer() != nil {
			return netip.Addr{}, false
		}
	}
}

func (n *names) put(key lookup, a answer) {
	if len(n.young) >= 2*namesKept { // two for each address
		n.young, n.old = map[lookup]answer{}, n.young
	}
	n.young[key] = a
}
