package faults

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// representatives returns tools that together have every trait that any tool has. Faults of what
// tools share are tested with these: see docs/faults.md.
func representatives(t testing.TB) []*tool.Tool {
	t.Helper()
	representativesOnce.Do(func() { someTools = tooltest.Representatives(t, tools.All()) })
	return slices.Clone(someTools)
}

var (
	representativesOnce sync.Once
	someTools           []*tool.Tool
	ownStartOnce        sync.Once
	ownStartTools       []*tool.Tool
)

// ownStart returns the representatives, and all tools with own code that looks at the machine
// before programs are attached (Plan.Resolve).
func ownStart(t testing.TB) []*tool.Tool {
	t.Helper()
	ownStartOnce.Do(func() {
		ownStartTools = slices.DeleteFunc(tools.All(), func(tl *tool.Tool) bool { return !tooltest.Traits(t, tl)["Plan.Resolve"] })
	})
	return with(representatives(t), ownStartTools)
}

// sending returns the tools that send events, or those that only count.
func sending(t testing.TB, send bool) []*tool.Tool {
	t.Helper()
	return slices.DeleteFunc(tools.All(), func(tl *tool.Tool) bool { return sendsEvents(t, tl) != send })
}

// with returns the tools of a and of b.
func with(a, b []*tool.Tool) []*tool.Tool { return append(a, without(b, a)...) }

// without returns the tools of a that b does not have.
func without(a, b []*tool.Tool) []*tool.Tool {
	return slices.DeleteFunc(slices.Clone(a), func(tl *tool.Tool) bool { return slices.Contains(b, tl) })
}

// mostRepresentatives limits the cost of the tests: each representative takes about thirty runs.
const mostRepresentatives = 45

// TestRepresentatives checks that each trait of each tool, also of a new one, has a representative,
// and that traits are recognized.
func TestRepresentatives(t *testing.T) {
	has := map[*tool.Tool]map[string]bool{}
	for _, tl := range tools.All() {
		has[tl] = tooltest.Traits(t, tl)
	}
	some := tooltest.Cover(has)
	covered := map[string]bool{}
	for _, tl := range some {
		own := maps.Clone(has[tl])
		maps.DeleteFunc(own, func(trait string, _ bool) bool { return covered[trait] })
		t.Logf("%s: %s", tl.Name, strings.Join(slices.Sorted(maps.Keys(own)), "; "))
		maps.Copy(covered, own)
	}
	for tl, own := range has {
		for trait := range own {
			if !covered[trait] {
				t.Errorf("no representative of %s: %s", tl.Name, trait)
			}
		}
	}
	for _, trait := range []string{
		"source.Events with map events", "source.Hists with map hists", "source.Table with map table", "source.Table with map totals",
		"source.Stacks with map held", "source.List.Iterators", "no programs",
		"source.Events attached by tracepoint", "source.Events attached by tracefs", "source.Events attached by usdt",
		"source.Table attached by function", "source.Stacks attached by user function", "source.Hists attached by perf_event",
		"source.Events with Decode", "source.Events with Next", "source.Events.Before", "source.Table.Readings",
		"Plan.Resolve", "Plan.Settle", "Plan.Optional", "Plan.StandIns", "Plan.Files",
	} {
		if !covered[trait] {
			t.Errorf("no tool has the trait %q: is it still recognized?", trait)
		}
	}
	if len(some) > mostRepresentatives {
		t.Errorf("%d representatives, want at most %d: a field of sources that only presents rows belongs in tooltest.presentation", len(some), mostRepresentatives)
	}
	unusual := &tool.Tool{Spec: tool.Spec{Name: "unusual"}}
	has[unusual] = map[string]bool{"unusual.source": true}
	if !slices.Contains(tooltest.Cover(has), unusual) {
		t.Error("a tool with a new trait is not a representative")
	}
}
