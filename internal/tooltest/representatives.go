package tooltest

import (
	"flag"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/tool"
)

// everyToolEnv is set to 1 to test all tools where otherwise representatives suffice.
const everyToolEnv = "CORESCOPE_EVERY_TOOL"

// Representatives returns a few of the tools that together have every trait that any of them has. Use
// it to test what tools share: how rows are read and written, how programs are attached, how a run
// ends. If -run selects subtests, it returns all tools, so that a new tool can be tested with
// everything.
func Representatives(t testing.TB, all []*tool.Tool) []*tool.Tool {
	t.Helper()
	if os.Getenv(everyToolEnv) == "1" || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return all
	}
	has := map[*tool.Tool]map[string]bool{}
	for _, tl := range all {
		has[tl] = Traits(t, tl)
	}
	return Cover(has)
}

// Cover returns a small set of tools that has every trait: repeatedly the tool with the most traits
// that are still missing.
func Cover(has map[*tool.Tool]map[string]bool) (some []*tool.Tool) {
	all := slices.SortedFunc(maps.Keys(has), func(a, b *tool.Tool) int { return strings.Compare(a.Name, b.Name) })
	missing := map[string]bool{}
	for _, own := range has {
		maps.Copy(missing, own)
	}
	for len(missing) > 0 {
		best := slices.MaxFunc(all, func(a, b *tool.Tool) int { return common(has[a], missing) - common(has[b], missing) })
		some = append(some, best)
		maps.DeleteFunc(missing, func(trait string, _ bool) bool { return has[best][trait] })
	}
	return some
}

func common(a, b map[string]bool) (n int) {
	for key := range a {
		if b[key] {
			n++
		}
	}
	return n
}

// Traits lists what a tool uses of the framework, with default options:
//   - the maps through which its programs send or count, by type of source
//   - the mechanisms that its hooks are attached by, by type of source
//   - what is set in the source, such as Before, and in its plan, such as Settle
//   - the methods of its rows that decode events, or hold rows back
//
// A source that a tool implements itself is a trait that no other tool has.
func Traits(t testing.TB, tl *tool.Tool) map[string]bool {
	t.Helper()
	spec, err := tl.Object()
	if err != nil {
		t.Fatal(err)
	}
	src, err := tl.Source()
	if err != nil {
		t.Fatal(err)
	}
	typ := reflect.TypeOf(src).Elem()
	name, _, _ := strings.Cut(typ.String(), "[")
	all := map[string]bool{}
	add := func(what ...string) { all[strings.Join(what, " ")] = true }
	for _, m := range []string{"events", "hists", "table", "totals", "held"} {
		if spec.Maps[m] != nil {
			add(name, "with map", m)
		}
	}
	if tl.NoPrograms {
		add("no programs")
	}
	for _, h := range probe.Hooks(spec) {
		var ways []string
		for _, v := range h.Variants {
			for _, section := range v.Where {
				ways = append(ways, mechanism(section))
			}
		}
		slices.Sort(ways)
		add(name, "attached by", strings.Join(slices.Compact(ways), " or "))
	}
	addFields(add, name, reflect.ValueOf(src).Elem())
	return all
}

// mechanism returns how the kernel attaches programs of a section. A tracepoint of tracefs has no
// alternative if it is the only one of its hook.
func mechanism(section string) string {
	kind, _, _ := strings.Cut(section, "/")
	switch kind {
	case "tp_btf", "raw_tp", "raw_tracepoint":
		return "tracepoint"
	case "tp", "tracepoint":
		return "tracefs"
	case "fentry", "fexit", "kprobe", "kretprobe":
		return "function"
	case "kprobe.multi", "kretprobe.multi", "kprobe.session":
		return "functions"
	case "uprobe", "uretprobe", "uprobe.s", "uprobe.multi", "uretprobe.multi", "uprobe.multi.s":
		return "user function"
	}
	return kind
}

// presentation are the fields of sources and plans that only select, name, order and draw columns,
// and sizes and constants.
var presentation = []string{
	"Columns", "Extra", "Headers", "Widths", "Row", "Label", "Fill", "Weight", "Parts", "Sort", "SortNames", "Off", "Unit", "Period", "Names", "Title",
	"Heading", "Caption", "TextRows", "Slots", "Keys", "Percentiles", "Ranking",
	"Variables", "MapEntries", "BufferBytes", "RowNoun", "Without",
}

func addFields(add func(...string), name string, v reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		switch {
		case !field.IsExported() || v.Field(i).IsZero() || slices.Contains(presentation, field.Name):
		case field.Type == reflect.TypeFor[tool.Plan]():
			addFields(add, "Plan", v.Field(i))
		default:
			add(name + "." + field.Name)
		}
	}
	if row := v.FieldByName("Row"); row.IsValid() && row.CanAddr() {
		for _, method := range []string{"Decode", "Next"} {
			if row.Addr().MethodByName(method).IsValid() {
				add(name, "with", method)
			}
		}
	}
}
