package flame

import (
	"cmp"
	"slices"
)

// node is a function called by the function of its parent.
type node struct {
	frame    Frame
	weight   uint64 // including its children
	children []*node
	byFrame  map[nodeKey]*node
}

type nodeKey struct {
	name string
	kind Kind
}

// newTree merges the common prefixes of the samples.
func newTree(samples []Sample) *node {
	root := &node{frame: Frame{Name: "all", Kind: Label}}
	for i := range samples {
		n, weight := root, samples[i].Weight
		n.weight += weight
		for _, f := range samples[i].Frames {
			n = n.child(f)
			n.weight += weight
		}
	}
	root.sort()
	return root
}

func (n *node) child(f Frame) *node {
	key := nodeKey{f.Name, f.Kind}
	c := n.byFrame[key]
	if c == nil {
		c = &node{frame: f}
		if n.byFrame == nil {
			n.byFrame = map[nodeKey]*node{}
		}
		n.byFrame[key] = c
		n.children = append(n.children, c)
	}
	return c
}

// sort orders children by name, so that graphs are comparable.
func (n *node) sort() {
	slices.SortFunc(n.children, func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.frame.Name, b.frame.Name), cmp.Compare(a.frame.Kind, b.frame.Kind))
	})
	for _, c := range n.children {
		c.sort()
	}
}
