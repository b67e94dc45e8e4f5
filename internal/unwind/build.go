package unwind

import (
	"debug/elf"
	"errors"
	"fmt"
	"math"

	"github.com/corescope/corescope/internal/binary"
)

// file returns a mapped file, with its table if it has one.
func (t *Tables) file(m *binary.Mapped, build bool) (*file, error) {
	if m.Path == vdsoName && m.Inode == 0 {
		return t.vdsoFile(m)
	}
	if m.Inode == 0 {
		return &file{}, nil
	}
	opened, key, err := openKey(m)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	if f := t.files[key]; f != nil {
		return f, nil
	}
	if !build {
		return nil, errUnmade
	}
	var c code
	err = opened.Parse(func(e *elf.File) error { return c.read(e, opened.Name(), t.limits.Blocks*BlockRows) })
	if err != nil && !errors.Is(err, ErrTooMany) {
		c = code{} // it is none of ours: that is to be known, too
	} else if err != nil {
		return nil, err
	}
	return t.keep(key, &c)
}

func (t *Tables) vdsoFile(m *binary.Mapped) (*file, error) {
	key := fileKey{vdso: true}
	if t.vdso == nil || t.vdso.size != m.End-m.Start {
		return &file{}, nil
	}
	if f := t.files[key]; f != nil {
		return f, nil
	}
	return t.keep(key, &t.vdso.code)
}

// keep writes the table of a file.
func (t *Tables) keep(key fileKey, c *code) (*file, error) {
	f := &file{segments: c.segments}
	blocks := (len(c.rows) + BlockRows - 1) / BlockRows
	place, ok := t.blocks.take(blocks)
	if !ok && blocks > 0 {
		return nil, ErrFull
	}
	f.blocks = place
	for at := range place.count {
		rows := c.rows[at*BlockRows:]
		b := t.block(rows[:min(len(rows), BlockRows)])
		if err := t.maps.PutBlock(place.first+at, b); err != nil {
			t.blocks.give(place)
			return nil, fmt.Errorf("write table: %w", err)
		}
	}
	t.files[key] = f
	return f, nil
}

func (t *Tables) block(rows []Row) *Block {
	var b Block
	for i := range b.PC {
		if b.PC[i] = math.MaxUint32; i < len(rows) {
			b.PC[i], b.Rule[i] = rows[i].PC, t.rule(rows[i].Rule)
		}
	}
	return &b
}

// rule returns the number of a rule: that of no rule, where there are too many.
func (t *Tables) rule(r Rule) uint16 {
	n, ok := t.rules[r]
	if ok {
		return n
	}
	if len(t.rules) < min(t.limits.Rules, math.MaxUint16) {
		n = uint16(len(t.rules))
		if t.maps.PutRule(uint32(n), r) != nil {
			n = 0
		}
	}
	t.rules[r] = n
	return n
}
