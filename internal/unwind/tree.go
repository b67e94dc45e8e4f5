package unwind

import (
	"math"
	"slices"
)

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

// builder builds a tree from rows that are added in the order of their addresses. It needs no memory
// for all rows together, which takes several times as much as the tree.
type builder struct {
	tree
	number  func(Rule) uint16 // returns the index of a rule, 0 for no rule
	pending []Row             // rows that are not in a leaf yet
	bases   []uint32          // of the leaves
	recent  [256]numbered     // results of number
}

// numbered is a rule and its index.
type numbered struct {
	rule  Rule
	index uint16
}

// index returns the index of a rule. Most rules differ only in the distance of the CFA, which selects
// the entry of recent: number takes much longer, because it looks in a map.
func (b *builder) index(r Rule) uint16 {
	n := &b.recent[uint8(r>>16)]
	if n.rule != r {
		*n = numbered{r, b.number(r)}
	}
	return n.index
}

// add adds a row, unless it has the rule of the previous one.
func (b *builder) add(pc uint32, rule Rule) {
	b.pending = appendRow(b.pending, pc, rule)
	if len(b.pending) == LeafRows+2 { // appendRow can replace the last two
		b.addLeaf()
	}
}

// finish returns the tree. If no row has a rule, it has no levels.
func (b *builder) finish() *tree {
	if len(b.bases) == 0 && len(b.pending) <= 1 {
		return &b.tree
	}
	for len(b.pending) > 0 {
		b.addLeaf()
	}
	b.base = b.bases[0]
	bases, first := b.bases, 0 // first is the index of the first block of the level
	for b.levels = 1; len(bases) > 1; b.levels++ {
		next := len(b.blocks)
		bases = b.addNodes(bases, first)
		first = next
	}
	return &b.tree
}

// root returns the index of the root block.
func (t *tree) root() int { return len(t.blocks) - 1 }

// addLeaf moves as many pending rows as fit to a new leaf.
func (b *builder) addLeaf() {
	l, n, base := &Leaf{}, 0, b.pending[0].PC
	for ; n < min(len(b.pending), LeafRows) && b.pending[n].PC-base <= maxOffset; n++ {
		l.Offset[n], l.Rule[n] = uint16(b.pending[n].PC-base), b.index(b.pending[n].Rule)
	}
	for i := n; i < LeafRows; i++ {
		l.Offset[i], l.Rule[i] = math.MaxUint16, l.Rule[n-1]
	}
	b.bases = append(b.bases, base)
	b.blocks = append(b.blocks, l)
	b.pending = slices.Delete(b.pending, 0, n)
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
