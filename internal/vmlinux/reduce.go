package vmlinux

import "fmt"

// reducer writes BTF that contains only the root types and the types of their members.
type reducer struct {
	*blob
	roots map[uint32]bool
	ids   map[ref]uint32 // new IDs
	todo  []ref          // types to write; the first one has the new ID 1
	types []byte
	texts map[uint32]uint32 // new offsets of names
	text  []byte
}

// ref is a reference to a type. With viaPointer, only the kind of the type is written, without name and
// members: relocations need no more of a type that is only referenced by pointers.
type ref struct {
	id         uint32
	viaPointer bool
}

func newReducer(b *blob) *reducer {
	const usual = 1024 // names and types of an object with struct sock
	r := &reducer{blob: b, roots: map[uint32]bool{}, ids: make(map[ref]uint32, usual), texts: make(map[uint32]uint32, usual), text: []byte{0}}
	r.texts[0] = 0
	return r
}

// ref returns the new ID of a type and queues the type to be written.
func (r *reducer) ref(id uint32, viaPointer bool) uint32 {
	if id == 0 {
		return 0
	}
	key := ref{id, viaPointer && !r.roots[id]}
	n, ok := r.ids[key]
	if !ok {
		r.todo = append(r.todo, key)
		n = uint32(len(r.todo))
		r.ids[key] = n
	}
	return n
}

// bytes returns the BTF file.
func (r *reducer) bytes() ([]byte, error) {
	for i := 0; i < len(r.todo); i++ {
		if err := r.write(r.todo[i]); err != nil {
			return nil, err
		}
	}
	const size = 24
	out := order.AppendUint16(nil, 0xeb9f)
	out = append(out, 1, 0) // version, flags
	for _, n := range []int{size, 0, len(r.types), len(r.types), len(r.text)} {
		out = order.AppendUint32(out, uint32(n))
	}
	return append(append(out, r.types...), r.text...), nil
}

func (r *reducer) write(t ref) error {
	rec, err := r.record(t.id)
	if err != nil {
		return err
	}
	name, info, last, rest := order.Uint32(rec), order.Uint32(rec[4:]), order.Uint32(rec[8:]), rec[headerSize:]
	k, members := unpack(info)
	switch k {
	case kindStruct, kindUnion, kindEnum, kindEnum64:
		if t.viaPointer {
			r.put(0, uint32(k)<<24, last)
			return nil
		}
		r.put(r.newName(name), info, last)
		r.members(k, members, rest)
	case kindPtr:
		r.put(0, info, r.ref(last, true))
	case kindTypedef, kindVolatile, kindConst, kindRestrict, kindTypeTag:
		r.put(r.newName(name), info, r.ref(last, t.viaPointer))
	case kindArray:
		r.put(0, info, 0)
		r.put(r.ref(order.Uint32(rest), t.viaPointer), r.ref(order.Uint32(rest[4:]), true), order.Uint32(rest[8:]))
	case kindFuncProto:
		r.put(0, info, r.ref(last, true))
		r.params(members, rest)
	case kindInt, kindFloat, kindFwd:
		r.put(r.newName(name), info, last)
		r.types = append(r.types, rest...)
	default:
		return fmt.Errorf("%w: kind %d within a type", errFormat, k)
	}
	return nil
}

func (r *reducer) members(k kind, n int, rest []byte) {
	size := int(layouts[k].each)
	for i := range n {
		m := rest[i*size : (i+1)*size]
		name, second := r.newName(order.Uint32(m)), order.Uint32(m[4:])
		switch k {
		case kindEnum:
			r.types = order.AppendUint32(order.AppendUint32(r.types, name), second)
		case kindEnum64:
			r.put(name, second, order.Uint32(m[8:]))
		default:
			r.put(name, r.ref(second, false), order.Uint32(m[8:]))
		}
	}
}

func (r *reducer) params(n int, rest []byte) {
	for i := range n {
		id := r.ref(order.Uint32(rest[i*8+4:]), true)
		r.types = order.AppendUint32(order.AppendUint32(r.types, 0), id)
	}
}

func (r *reducer) put(a, b, c uint32) {
	r.types = order.AppendUint32(order.AppendUint32(order.AppendUint32(r.types, a), b), c)
}

// newName returns the offset of a name in the new file.
func (r *reducer) newName(off uint32) uint32 {
	n, ok := r.texts[off]
	if !ok {
		n = uint32(len(r.text))
		r.texts[off] = n
		r.text = append(append(r.text, r.name(off)...), 0)
	}
	return n
}
