package unwind

import "math"

// Sizes of blocks: UNWIND_LEAF_ROWS and UNWIND_NODE_ROWS of unwindtable.bpf.h.
const (
	LeafRows = 128
	NodeRows = 64
)

// Leaf is struct unwind_leaf: offsets relative to the base, and indices of rules.
type Leaf struct{ Offset, Rule [LeafRows]uint16 }

// Node is struct unwind_node: bases and indices of child blocks.
type Node struct{ Base, Block [NodeRows]uint32 }

// tree is the unwind table of a file as a tree of blocks. Nodes refer to blocks by their index.
type tree struct {
	blocks []any // *Leaf or *Node
	levels uint32
	base   uint32
}

// maxOffset is the largest offset in a leaf; unused rows have a larger one.
const maxOffset = math.MaxUint16 - 1

// newTree builds a tree from rows. number returns the index of a rule. Without rows, levels is 0.
func newTree(rows []Row, number func(Rule) uint16) *tree {
	t := &tree{}
	if len(rows) == 0 {
		return t
	}
	t.base = rows[0].PC
	var bases []uint32
	for len(rows) > 0 {
		bases = append(bases, rows[0].PC)
		rows = t.addLeaf(rows, number)
	}
	first := 0 // index of the first block of the level
	for t.levels = 1; len(bases) > 1; t.levels++ {
		next := len(t.blocks)
		bases = t.addNodes(bases, first)
		first = next
	}
	return t
}

// root returns the index of the root block.
func (t *tree) root() int { return len(t.blocks) - 1 }

// addLeaf adds a leaf with as many rows as fit, and returns the others.
func (t *tree) addLeaf(rows []Row, number func(Rule) uint16) []Row {
	l, n, base := &Leaf{}, 0, rows[0].PC
	for ; n < min(len(rows), LeafRows) && rows[n].PC-base <= maxOffset; n++ {
		l.Offset[n], l.Rule[n] = uint16(rows[n].PC-base), number(rows[n].Rule)
	}
	for i := n; i < LeafRows; i++ {
		l.Offset[i], l.Rule[i] = math.MaxUint16, l.Rule[n-1]
	}
	t.blocks = append(t.blocks, l)
	return rows[n:]
}

// addNodes adds the level above blocks with the bases below, whose first index is first. It returns
// the bases of the new nodes.
func (t *tree) addNodes(below []uint32, first int) (bases []uint32) {
	for at := 0; at < len(below); at += NodeRows {
		n := &Node{}
		for i := range n.Base {
			if n.Base[i] = math.MaxUint32; at+i < len(below) {
				n.Base[i], n.Block[i] = below[at+i], uint32(first+at+i)
			}
		}
		bases = append(bases, n.Base[0])
		t.blocks = append(t.blocks, n)
	}
	return bases
}
