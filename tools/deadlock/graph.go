package deadlock

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/corescope/corescope/internal/value"
)

const (
	maxMutexes = 8      // in a cycle
	maxSteps   = 20_000 // of the search for cycles with one order
)

// edge is an order: threads acquire the mutex To while they hold From and the gates.
type edge struct {
	event
	gates              []mutex  // other mutexes that the thread holds, in ascending order
	tids               []uint32 // up to two threads that have made it
	toStack, fromStack value.Stack
}

func newEdge(e *event) *edge {
	e.From.Depth, e.To.Depth = 0, 0 // not a part of the identity
	n := &edge{event: *e, tids: []uint32{e.TID}}
	for _, m := range e.Held {
		if m.Depth = 0; m.Address != 0 && m != e.From && m != e.To {
			n.gates = append(n.gates, m)
		}
	}
	slices.SortFunc(n.gates, compare)
	return n
}

func compare(a, b mutex) int {
	return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Generation, b.Generation))
}

// graph has the orders of mutexes in a process, by the mutex that is held.
type graph map[mutex][]*edge

type process struct{ pid, space uint32 }

// found is a row of a cycle.
type found struct {
	edge    *edge
	cycle   uint64
	mutexes int
	holds   bool
}

// graphs are the graphs of all processes.
type graphs struct {
	all      map[process]graph
	reported map[string]bool
	cycles   uint64
	found    []found // rows that have not been shown
	keep     bool    // also of processes that have ended
}

// drop forgets a process that has ended.
func (g *graphs) drop(pid uint32) {
	if g.keep {
		return
	}
	for p := range g.all {
		if p.pid == pid {
			delete(g.all, p)
		}
	}
}

// add adds an order, and reports new cycles that it is a part of.
func (g *graphs) add(e *edge) {
	if g.all == nil {
		g.all, g.reported = map[process]graph{}, map[string]bool{}
	}
	p := process{e.PID, e.Space}
	if g.all[p] == nil {
		g.all[p] = graph{}
	}
	edges := g.all[p][e.From]
	if i := slices.IndexFunc(edges, func(o *edge) bool { return o.To == e.To && slices.Equal(o.gates, e.gates) }); i >= 0 {
		if e = edges[i].with(e.TID); e == nil {
			return
		}
	} else {
		g.all[p][e.From] = append(edges, e)
	}
	steps := maxSteps
	for most := 2; most <= maxMutexes && steps > 0; most++ {
		g.search(p, []*edge{e}, most, &steps)
	}
}

// with adds a thread, and returns nil if that changes nothing.
func (e *edge) with(tid uint32) *edge {
	if len(e.tids) > 1 || slices.Contains(e.tids, tid) {
		return nil
	}
	e.tids = append(e.tids, tid)
	return e
}

// search reports the cycles with this number of edges that begin with path.
func (g *graphs) search(p process, path []*edge, mutexes int, steps *int) {
	first, last := path[0], path[len(path)-1]
	for _, next := range g.all[p][last.To] {
		if *steps--; *steps < 0 {
			return
		}
		if !isPossible(path, next) {
			continue
		}
		closes := next.To == first.From
		switch {
		case closes && len(path)+1 == mutexes:
			g.report(p, append(slices.Clone(path), next))
		case !closes && len(path)+1 < mutexes:
			g.search(p, append(slices.Clone(path), next), mutexes, steps)
		}
	}
}

// isPossible reports whether an edge can follow the path in a deadlock: by another thread, without a
// common gate, and to a mutex that is not in the path.
func isPossible(path []*edge, next *edge) bool {
	for i, e := range path {
		if i > 0 && next.To == e.From || len(e.tids) == 1 && slices.Equal(e.tids, next.tids) {
			return false
		}
		if slices.ContainsFunc(e.gates, func(gate mutex) bool { return slices.Contains(next.gates, gate) }) {
			return false
		}
	}
	return true
}

// report adds the rows of a cycle, unless one with these mutexes in this order was reported.
func (g *graphs) report(p process, cycle []*edge) {
	least := slices.MinFunc(cycle, func(a, b *edge) int { return compare(a.From, b.From) })
	at := slices.Index(cycle, least)
	cycle = slices.Concat(cycle[at:], cycle[:at])
	key := fmt.Sprint(p)
	for _, e := range cycle {
		key += fmt.Sprintf(" %x.%d", e.From.Address, e.From.Generation)
	}
	if g.reported[key] {
		return
	}
	g.reported[key] = true
	g.cycles++
	for _, e := range cycle {
		g.found = append(g.found, found{e, g.cycles, len(cycle), false}, found{e, g.cycles, len(cycle), true})
	}
}

// order is an edge in the file of --dump-graph.
type order struct {
	PID     uint32   `json:"pid"`
	TIDs    []uint32 `json:"tids"`
	Comm    string   `json:"comm"`
	Holding string   `json:"holding"`
	Mutex   string   `json:"mutex"`
	Gates   []string `json:"gates"`
}

// write writes all orders to a file, and closes it.
func (g *graphs) write(f *os.File) error {
	orders := []order{}
	for p, graph := range g.all {
		for _, edges := range graph {
			for _, e := range edges {
				o := order{PID: p.pid, TIDs: e.tids, Comm: e.Comm.String(), Holding: hex(e.From.Address), Mutex: hex(e.To.Address), Gates: []string{}}
				for _, gate := range e.gates {
					o.Gates = append(o.Gates, hex(gate.Address))
				}
				orders = append(orders, o)
			}
		}
	}
	slices.SortFunc(orders, func(a, b order) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Holding, b.Holding), cmp.Compare(a.Mutex, b.Mutex))
	})
	text, err := json.MarshalIndent(map[string]any{"orders": orders}, "", "  ")
	if err == nil {
		_, err = f.Write(append(text, '\n'))
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write graph: %w", err)
	}
	return nil
}

func hex(address uint64) string { return fmt.Sprintf("%#x", address) }
