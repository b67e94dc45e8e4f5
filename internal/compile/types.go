package compile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// ints returns the integer types of C and the kernel that are known without BTF, by name.
func ints() map[string]*btf.Int {
	out := map[string]*btf.Int{}
	add := func(size uint32, encoding btf.IntEncoding, names ...string) {
		for _, name := range names {
			out[name] = &btf.Int{Name: name, Size: size, Encoding: encoding}
		}
	}
	add(1, btf.Char, "char")
	add(1, btf.Signed, "s8", "__s8", "int8_t", "signed char")
	add(1, btf.Unsigned, "u8", "__u8", "uint8_t", "u_int8_t", "unsigned char")
	add(1, btf.Bool, "bool", "_Bool")
	add(2, btf.Signed, "short", "short int", "s16", "__s16", "int16_t")
	add(2, btf.Unsigned, "unsigned short", "unsigned short int", "short unsigned int", "u16", "__u16", "uint16_t", "u_int16_t", "umode_t", "__be16", "__le16")
	add(4, btf.Signed, "int", "signed", "signed int", "s32", "__s32", "int32_t", "pid_t")
	add(4, btf.Unsigned, "unsigned", "unsigned int", "u32", "__u32", "uint32_t", "u_int32_t", "uid_t", "gid_t", "dev_t", "__be32", "__le32")
	add(8, btf.Signed, "long", "long int", "long long", "long long int", "s64", "__s64", "int64_t", "ssize_t", "loff_t", "off_t")
	add(8, btf.Unsigned, "unsigned long", "long unsigned int", "unsigned long long", "long long unsigned int",
		"unsigned long int", "unsigned long long int", "u64", "__u64", "uint64_t", "u_int64_t", "size_t", "uintptr_t", "sector_t")
	return out
}

// qualifiers are ignored in type names.
var qualifiers = []string{"const", "volatile", "restrict", "__user", "__kernel"}

// typeName parses the name of a type, if the tokens start with one: a type of C, a typedef
// listed in ints, or "struct X".
func (p *parser) typeName() (typeName, bool) {
	start := p.at
	var t typeName
	known := ints()
	for p.peek().kind == tokenName {
		word := p.peek().text
		switch {
		case slices.Contains(qualifiers, word):
			p.next()
			continue
		case word == "struct" || word == "union" || word == "enum":
			p.next()
			t.words = append(t.words, word, p.next().text)
			continue
		case word == "void" || word == "unsigned" || known[strings.Join(append(slices.Clone(t.words), word), " ")] != nil:
			p.next()
			t.words = append(t.words, word)
			continue
		}
		break
	}
	for len(t.words) > 0 && p.accept("*") {
		t.pointers++
	}
	if len(t.words) == 0 {
		p.at = start
		return t, false
	}
	return t, true
}

// resolve returns the type. Types that are not basic types of C are looked up in types.
func (t typeName) resolve(types *btf.Spec) (btf.Type, error) {
	base, err := t.base(types)
	if err != nil {
		return nil, err
	}
	for range t.pointers {
		base = &btf.Pointer{Target: base}
	}
	return base, nil
}

func (t typeName) base(types *btf.Spec) (btf.Type, error) {
	name := strings.Join(t.words, " ")
	if i := ints()[name]; i != nil {
		return i, nil
	}
	if name == "void" {
		return (*btf.Void)(nil), nil
	}
	if types == nil {
		return nil, fmt.Errorf("unknown type %s: only the basic types of C are known, because the kernel has no BTF", name)
	}
	word := ""
	if len(t.words) == 2 {
		word = t.words[0]
	}
	all, err := types.AnyTypesByName(t.words[len(t.words)-1])
	if err != nil && !errors.Is(err, btf.ErrNotFound) {
		return nil, fmt.Errorf("type %s: %w", name, err)
	}
	for _, found := range all {
		if keyword(found) == word && (word != "" || isTypedef(found)) {
			return found, nil
		}
	}
	return nil, fmt.Errorf("unknown type %s: it is not in the BTF of this kernel", name)
}

func isTypedef(t btf.Type) bool {
	_, ok := t.(*btf.Typedef)
	return ok
}

func keyword(t btf.Type) string {
	switch t.(type) {
	case *btf.Struct:
		return "struct"
	case *btf.Union:
		return "union"
	case *btf.Enum:
		return "enum"
	}
	return ""
}

// scalar is the representation of a value in a register.
type scalar struct {
	size   uint32
	signed bool
}

// scalarOf returns the representation of a type in a register, if it has one. Pointers are
// unsigned.
func scalarOf(t btf.Type) (scalar, bool) {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Int:
		return scalar{t.Size, t.Encoding == btf.Signed || t.Encoding == btf.Char}, t.Size <= 8
	case *btf.Enum:
		return scalar{t.Size, t.Signed}, true
	case *btf.Pointer:
		return scalar{8, false}, true
	}
	return scalar{}, false
}

// elem returns the element type of a pointer or array.
func elem(t btf.Type) (btf.Type, bool) {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Pointer:
		return t.Target, true
	case *btf.Array:
		return t.Type, true
	}
	return nil, false
}

// isText reports whether t is a pointer to or an array of bytes.
func isText(t btf.Type) bool {
	of, ok := elem(t)
	if !ok {
		return false
	}
	i, ok := btf.UnderlyingType(of).(*btf.Int)
	return ok && i.Size == 1 && i.Encoding != btf.Bool
}

// field returns the member with the given name, also of anonymous structs and unions, and its
// offset in bits.
func field(t btf.Type, name string) (btf.Member, btf.Bits, bool) {
	var members []btf.Member
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	if common, ok := sockName(t, name); ok {
		name = common
	}
	for _, m := range members {
		if m.Name == name {
			return m, m.Offset, true
		}
		if m.Name == "" || strings.HasPrefix(name, "skc_") && (m.Name == "__sk_common" || m.Name == "sk") {
			if in, offset, ok := field(m.Type, name); ok {
				return in, m.Offset + offset, true
			}
		}
	}
	return btf.Member{}, 0, false
}

// sockName returns the member of struct sock_common for a name that the kernel's sources define as a
// macro: sk->sk_dport is sk->__sk_common.skc_dport, inet->inet_dport is inet->sk.__sk_common.skc_dport.
func sockName(t btf.Type, name string) (string, bool) {
	s, ok := btf.UnderlyingType(t).(*btf.Struct)
	if !ok {
		return "", false
	}
	prefix := map[string]string{"sock": "sk_", "inet_sock": "inet_"}[s.Name]
	rest, ok := strings.CutPrefix(name, prefix)
	isDefined := slices.ContainsFunc(s.Members, func(m btf.Member) bool { return m.Name == name })
	if !ok || prefix == "" || isDefined {
		return "", false
	}
	return "skc_" + rest, true
}
