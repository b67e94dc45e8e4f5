package tcpconnect

import (
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/corescope/corescope/internal/value"
)

// namesKept is the number of addresses whose names are kept at least. At twice that number the older
// half is dropped.
const namesKept = 1 << 16

// names maps addresses to the names that they were looked up by, from the DNS answers of processes.
type names struct{ young, old map[lookup]answer }

// lookup is an address in an answer to a process, or to any process if pid is 0.
type lookup struct {
	pid  uint32
	addr netip.Addr
}

type answer struct {
	name value.Name
	at   value.Time
}

func newNames() *names { return &names{young: map[lookup]answer{}} }

// find returns the name in the last answer to the process with this address, otherwise in the last
// answer to any process, and the time of the answer. The name is "" if there is none.
func (n *names) find(pid uint32, addr netip.Addr) (value.Name, value.Time) {
	for _, key := range []lookup{{pid, addr}, {0, addr}} {
		for _, generation := range []map[lookup]answer{n.young, n.old} {
			if a, ok := generation[key]; ok {
				return a.name, a.at
			}
		}
	}
	return "", 0
}

// learn reads a DNS answer that a process received. It stops at the first malformed or truncated
// record, because the sender is not trusted.
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

// nextAddress returns the next address record. It skips other records, such as CNAME.
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
