package packetsnoop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// maxTerms is TERMS_MAX, and the ends are END_*, of filter.bpf.h.
const (
	maxTerms  = 64
	endSource = 1
	endDest   = 2
	endBoth   = 4
)

// compile compiles a filter expression of tcpdump (pcap-filter(7)) to terms in postfix order.
func compile(text string) ([]bpfTerm, error) {
	p := &parser{}
	var err error
	if p.words, err = split(text); err != nil || len(p.words) == 0 {
		return nil, err
	}
	if err := p.alternatives(); err != nil {
		return nil, err
	}
	if p.peek() != "" {
		return nil, p.unexpected("and, or, or the end")
	}
	if len(p.terms) > maxTerms {
		return nil, fmt.Errorf("the expression has %d terms, the maximum is %d", len(p.terms), maxTerms)
	}
	return p.terms, nil
}

// split splits an expression into words and operators.
func split(text string) (words []string, err error) {
	isWord := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune(`.:/_-\`, r)
	}
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		n := strings.IndexFunc(text, func(r rune) bool { return !isWord(r) })
		if n < 0 {
			n = len(text)
		}
		if n == 0 {
			for _, op := range []string{"&&", "||", "!=", "==", ">=", "<=", "(", ")", "[", "]", "!", "=", ">", "<", "&", "|"} {
				if strings.HasPrefix(text, op) {
					n = len(op)
					break
				}
			}
		}
		if n == 0 {
			return nil, fmt.Errorf("unexpected %q", []rune(text)[0])
		}
		words, text = append(words, text[:n]), text[n:]
	}
	return words, nil
}

// qualifiers say what an address or number is compared with. A word without qualifiers has those
// of the word before it.
type qualifiers struct {
	proto, kind string
	ends        uint32
}

type parser struct {
	words []string
	next  int
	terms []bpfTerm
	last  qualifiers
	depth int
}

func (p *parser) peek() string {
	if p.next < len(p.words) {
		return p.words[p.next]
	}
	return ""
}

func (p *parser) take() string {
	w := p.peek()
	p.next++
	return w
}

func (p *parser) accept(words ...string) bool {
	if w := p.peek(); w == "" || !slices.Contains(words, w) {
		return false
	}
	p.next++
	return true
}

func (p *parser) unexpected(want string) error {
	if p.peek() == "" {
		return fmt.Errorf("unexpected end, want %s", want)
	}
	return fmt.Errorf("unexpected %q after %q, want %s", p.peek(), strings.Join(p.words[:p.next], " "), want)
}

func (p *parser) add(kind bpfTermKind, t bpfTerm) {
	t.Kind = uint32(kind)
	p.terms = append(p.terms, t)
}

// and combines the last two results.
func (p *parser) and() { p.add(bpfTermKindTERM_AND, bpfTerm{}) }
func (p *parser) or()  { p.add(bpfTermKindTERM_OR, bpfTerm{}) }

// alternatives parses terms with "and" and "or", which have the same precedence.
func (p *parser) alternatives() error {
	if err := p.negation(); err != nil {
		return err
	}
	for {
		combine := p.and
		switch {
		case p.accept("or", "||"):
			combine = p.or
		case p.accept("and", "&&"):
		default:
			return nil
		}
		if err := p.negation(); err != nil {
			return err
		}
		combine()
	}
}

// maxDepth limits the recursion.
const maxDepth = 100

func (p *parser) negation() error {
	if p.depth++; p.depth > maxDepth {
		return errors.New("the expression is nested too deeply")
	}
	defer func() { p.depth-- }()
	switch {
	case p.accept("not", "!"):
		if err := p.negation(); err != nil {
			return err
		}
		p.add(bpfTermKindTERM_NOT, bpfTerm{})
		return nil
	case p.accept("("):
		if err := p.alternatives(); err != nil {
			return err
		}
		if !p.accept(")") {
			return p.unexpected(")")
		}
		return nil
	}
	return p.primitive()
}

// etherTypes and protocols are the names of protocols in expressions.
func etherTypes() map[string]uint32 {
	return map[string]uint32{"ip": 0x0800, "ip6": 0x86dd, "arp": 0x0806, "rarp": 0x8035}
}

func protocols() map[string]uint32 {
	return map[string]uint32{"tcp": 6, "udp": 17, "sctp": 132, "icmp": 1, "icmp6": 58, "igmp": 2, "ah": 51, "esp": 50}
}

func isProtocol(w string) bool {
	return w == "ether" || etherTypes()[w] > 0 || protocols()[w] > 0
}

const kinds = "host, net, port, portrange, proto"

func (p *parser) primitive() error {
	switch w := p.peek(); {
	case w == "less", w == "greater", w == "len":
		return p.length()
	case w == "tcp" && p.next+1 < len(p.words) && p.words[p.next+1] == "[":
		return p.flags()
	case slices.Contains([]string{"inbound", "outbound"}, w):
		return fmt.Errorf("%s is not supported: use --direction", w)
	case slices.Contains([]string{"vlan", "mpls", "gateway", "broadcast", "multicast", "ifname", "on"}, w):
		return fmt.Errorf("%s is not supported", w)
	}
	var q qualifiers
	if isProtocol(p.peek()) {
		q.proto = p.take()
	}
	switch {
	case p.accept("src"):
		q.ends = endSource
	case p.accept("dst"):
		q.ends = endDest
	}
	if rest := p.words[min(p.next, len(p.words)):]; q.ends == endSource && len(rest) > 1 && rest[1] == "dst" {
		switch rest[0] {
		case "or":
			q.ends = endSource | endDest
			p.next += 2
		case "and":
			q.ends = endSource | endDest | endBoth
			p.next += 2
		}
	}
	if slices.Contains(strings.Split(kinds, ", "), p.peek()) {
		q.kind = p.take()
	}
	if q.proto != "" && q.ends == 0 && q.kind == "" {
		return p.protocol(q.proto)
	}
	if q == (qualifiers{}) {
		q = p.last
	}
	if q.kind == "" {
		q.kind = "host"
	}
	if q.ends == 0 {
		q.ends = endSource | endDest
	}
	p.last = q
	return p.qualified(q)
}

// protocol adds a term for packets of a protocol.
func (p *parser) protocol(name string) error {
	if t, ok := etherTypes()[name]; ok {
		p.add(bpfTermKindTERM_ETHER, bpfTerm{Low: t})
		return nil
	}
	n, ok := protocols()[name]
	if !ok {
		return p.unexpected("proto")
	}
	p.add(bpfTermKindTERM_PROTOCOL, bpfTerm{Low: n})
	if name == "icmp" || name == "icmp6" {
		p.add(bpfTermKindTERM_ETHER, bpfTerm{Low: map[string]uint32{"icmp": 0x0800, "icmp6": 0x86dd}[name]})
		p.and()
	}
	return nil
}

// qualified adds a term for the value that follows.
func (p *parser) qualified(q qualifiers) error {
	w := p.peek()
	if w == "" || isOperator(w) {
		return p.unexpected("an address, a port, or one of " + kinds)
	}
	p.next++
	var err error
	switch q.kind {
	case "host":
		err = p.host(w, q)
	case "net":
		err = p.net(w, q)
	case "port":
		err = p.ports(w, w, q)
	case "portrange":
		first, last, ok := strings.Cut(w, "-")
		if !ok {
			return fmt.Errorf("portrange %s: want FIRST-LAST", w)
		}
		err = p.ports(first, last, q)
	case "proto":
		return p.number(w, q)
	}
	if err != nil || q.proto == "" {
		return err
	}
	if err := p.protocol(q.proto); err != nil {
		return err
	}
	p.and()
	return nil
}

func isOperator(w string) bool {
	return strings.ContainsAny(w[:1], "()[]!=<>&|") || w == "and" || w == "or" || w == "not"
}

func (p *parser) host(w string, q qualifiers) error {
	addr, err := netip.ParseAddr(w)
	if err != nil {
		return fmt.Errorf("%s is not an IP address; names are not resolved", w)
	}
	p.addr(netip.PrefixFrom(addr, addr.BitLen()), q)
	return nil
}

// net adds a term for a network: an address with a prefix length or a mask, or the first bytes of an
// IPv4 address.
func (p *parser) net(w string, q qualifiers) error {
	if p.accept("mask") {
		mask, err := netip.ParseAddr(p.take())
		if err != nil || !mask.Is4() {
			return fmt.Errorf("net %s: the mask is not an IPv4 address", w)
		}
		b := mask.As4()
		bits := binary.BigEndian.Uint32(b[:])
		n := 0
		for ; n < 32 && bits<<n>>31 == 1; n++ {
		}
		if n < 32 && bits<<n != 0 {
			return fmt.Errorf("net %s: the mask %s is not a prefix", w, mask)
		}
		w += "/" + strconv.Itoa(n)
	}
	addr, length, hasLength := strings.Cut(w, "/")
	if !strings.Contains(addr, ":") {
		bytes := 1 + strings.Count(addr, ".")
		if !hasLength {
			length = strconv.Itoa(8 * bytes)
		}
		addr += strings.Repeat(".0", max(0, 4-bytes))
	} else if !hasLength {
		length = "128"
	}
	prefix, err := netip.ParsePrefix(addr + "/" + length)
	if err != nil {
		return fmt.Errorf("%s is not a network such as 10.0.0.0/8 or fd00::/8", w)
	}
	if prefix.Masked() != prefix {
		return fmt.Errorf("net %s: bits after the prefix are not 0", w)
	}
	p.addr(prefix, q)
	return nil
}

func (p *parser) addr(prefix netip.Prefix, q qualifiers) {
	t := bpfTerm{Ends: q.ends}
	addr, bits := prefix.Addr().As16(), prefix.Bits()+128-prefix.Addr().BitLen()
	var mask [16]byte
	for i := range bits {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	for i := range t.Addr {
		t.Addr[i], t.Mask[i] = binary.NativeEndian.Uint64(addr[8*i:]), binary.NativeEndian.Uint64(mask[8*i:])
	}
	p.add(bpfTermKindTERM_ADDR, t)
	if !prefix.Addr().Is4() && bits < 96 {
		// IPv4 addresses are stored as IPv6 addresses of ::ffff:0:0/96.
		p.add(bpfTermKindTERM_ETHER, bpfTerm{Low: etherTypes()["ip6"]})
		p.and()
	}
}

func (p *parser) ports(first, last string, q qualifiers) error {
	var n [2]uint32
	for i, w := range []string{first, last} {
		port, err := strconv.ParseUint(w, 10, 16)
		if err != nil {
			return fmt.Errorf("%s is not a port, a number up to 65535", w)
		}
		n[i] = uint32(port)
	}
	p.add(bpfTermKindTERM_PORT, bpfTerm{Ends: q.ends, Low: min(n[0], n[1]), High: max(n[0], n[1])})
	return nil
}

// number adds a term for a protocol by number or name: of Ethernet, or of IP.
func (p *parser) number(w string, q qualifiers) error {
	w = strings.TrimPrefix(w, `\`)
	names, kind := protocols(), bpfTermKindTERM_PROTOCOL
	if q.proto == "ether" {
		names, kind = etherTypes(), bpfTermKindTERM_ETHER
	}
	n, ok := names[w]
	if !ok {
		parsed, err := strconv.ParseUint(w, 0, 16)
		if err != nil {
			return fmt.Errorf("proto %s: not a known protocol or number", w)
		}
		n = uint32(parsed)
	}
	p.add(kind, bpfTerm{Low: n})
	if t, ok := etherTypes()[q.proto]; ok {
		p.add(bpfTermKindTERM_ETHER, bpfTerm{Low: t})
		p.and()
	}
	return nil
}

// length adds a term for "less N", "greater N" or "len OPERATOR N".
func (p *parser) length() error {
	op := p.take()
	if op == "len" {
		op = p.take()
	}
	n, err := strconv.ParseUint(p.peek(), 0, 32)
	if err != nil {
		return p.unexpected("a number of bytes")
	}
	p.next++
	t := bpfTerm{High: math.MaxUint32}
	switch op {
	case "less", "<=":
		t.High = uint32(n)
	case "greater", ">=":
		t.Low = uint32(n)
	case "=", "==", "!=":
		t.Low, t.High = uint32(n), uint32(n)
	case "<", ">":
		// The opposite, negated, is valid for 0 and the largest number too.
		t.Low, t.High = map[string]uint32{"<": uint32(n)}[op], map[string]uint32{"<": math.MaxUint32, ">": uint32(n)}[op]
	default:
		return fmt.Errorf("len %s: want one of < <= > >= == !=", op)
	}
	p.add(bpfTermKindTERM_LEN, t)
	if op == "!=" || op == "<" || op == ">" {
		p.add(bpfTermKindTERM_NOT, bpfTerm{})
	}
	return nil
}

func tcpFlags() map[string]uint32 {
	return map[string]uint32{
		"tcp-fin": 1, "tcp-syn": 2, "tcp-rst": 4, "tcp-push": 8, "tcp-ack": 16, "tcp-urg": 32, "tcp-ece": 64, "tcp-cwr": 128,
	}
}

// flags adds a term for "tcp[tcpflags] & MASK OPERATOR VALUE". Other bytes of headers are not
// supported.
func (p *parser) flags() error {
	p.next += 2 // tcp [
	if !p.accept("tcpflags", "13") || !p.accept("]") {
		return p.unexpected("tcpflags]: other bytes of headers are not supported")
	}
	mask := uint32(0xff)
	var err error
	if p.accept("&") {
		if mask, err = p.bits(); err != nil {
			return err
		}
	}
	negate := p.peek() == "!="
	if !p.accept("!=", "==", "=") {
		return p.unexpected("== or !=")
	}
	n, err := p.bits()
	if err != nil {
		return err
	}
	p.add(bpfTermKindTERM_FLAGS, bpfTerm{Low: mask, High: n})
	if negate {
		p.add(bpfTermKindTERM_NOT, bpfTerm{})
		p.add(bpfTermKindTERM_PROTOCOL, bpfTerm{Low: protocols()["tcp"]})
		p.and()
	}
	return nil
}

// bits parses flags by name or number, combined with |, with or without parentheses.
func (p *parser) bits() (all uint32, err error) {
	inner := p.accept("(")
	for {
		n, ok := tcpFlags()[p.peek()]
		if !ok {
			parsed, err := strconv.ParseUint(p.peek(), 0, 8)
			if err != nil {
				return 0, p.unexpected("flags such as tcp-syn")
			}
			n = uint32(parsed)
		}
		p.next++
		all |= n
		if !p.accept("|") {
			break
		}
	}
	if inner && !p.accept(")") {
		return 0, p.unexpected(")")
	}
	return all, nil
}
