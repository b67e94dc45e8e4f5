package inject

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/fetch"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
)

// mode is a function that can fail: see ALLOW_ERROR_INJECTION in the kernel.
type mode struct {
	function, signature string
	result              int64
	name                string // of the result
	needs               string // where the function can be missing
}

var modes = map[string]mode{
	"kmalloc":    {"should_failslab", "(struct kmem_cache *s, gfp_t gfpflags)", -12, "ENOMEM", "CONFIG_FAILSLAB (since Linux 6.11)"},
	"bio":        {"should_fail_bio", "(struct bio *bio)", -5, "EIO", "CONFIG_FUNCTION_ERROR_INJECTION, or that the compiler has not inlined it"},
	"alloc_page": {"should_fail_alloc_page", "(gfp_t gfp_mask, unsigned int order)", 1, "true", "CONFIG_FAIL_PAGE_ALLOC (since Linux 6.11)"},
}

const (
	mostLevels = 8  // LEVELS_MAX
	mostSites  = 64 // SITES_MAX
)

// chain is a resolved spec.
type chain struct {
	names     []string // of the functions, the outermost first
	levels    []uint32 // position in names, by target_id()
	instances []tool.Instance
}

// within describes the chain as the end of a sentence.
func (c *chain) within() string {
	if len(c.names) == 0 {
		return ""
	}
	return ", within " + strings.Join(c.names, ", and in that ")
}

// trampolines are the symbols that return probes replace return addresses by: kprobes before Linux
// 5.15, after it, and with rethook, and fprobe with fgraph.
var trampolines = []string{"kretprobe_trampoline", "__kretprobe_trampoline", "arch_rethook_trampoline", "return_to_handler"}

// stackSymbols are the first address of the stack of the first task and the next address after it, from
// Linux 6.10 on and before.
var stackSymbols = [][2]string{{"__start_init_stack", "__end_init_stack"}, {"__start_init_task", "__end_init_task"}}

// stackBytes is the size of the stack of a task, unless the kernel has the symbols.
const stackBytes = 16 << 10

// injectionSymbol is a function of kernels that have a list of functions which can fail.
const injectionSymbol = "within_error_injection_list"

// stack returns the addresses of the trampolines, and the size of the stack of a task. Without the
// trampolines, no call of the chain could be told from one that has returned. It notes if the function
// that fails can be inlined.
func (c *chain) stack(function string, note func(string)) (returns []uint64, size uint64, err error) {
	names := append([]string{"_stext", injectionSymbol}, trampolines...)
	for _, s := range stackSymbols {
		names = append(names, s[:]...)
	}
	found, err := system.KernelSymbols("/", names...)
	if err != nil {
		return nil, 0, err
	}
	if found["_stext"] != 0 && found[injectionSymbol] == 0 && function == modes["bio"].function {
		note("the kernel has no CONFIG_FUNCTION_ERROR_INJECTION, so the compiler can have inlined " + function + ": then there are no calls to show")
	}
	if len(c.names) > 0 && found["_stext"] == 0 {
		return nil, 0, errors.New("find which calls are in progress: the kernel hides its addresses: set kernel.kptr_restrict to 0, or to 1 with CAP_SYSLOG")
	}
	for _, name := range trampolines {
		if found[name] != 0 {
			returns = append(returns, found[name])
		}
	}
	size = stackBytes
	for _, s := range stackSymbols {
		if start, end := found[s[0]], found[s[1]]; start > 0 && end > start {
			size = end - start
		}
	}
	return returns, size, nil
}

// part is one part of a spec: a function with a condition, or only the condition.
type part struct{ function, condition string }

// parse splits a spec into its parts.
func parse(spec string) (base string, parts []part, err error) {
	for i, text := range strings.Split(spec, "=>") {
		text = strings.TrimSpace(text)
		open := strings.IndexByte(text, '(')
		switch {
		case text == "":
			return "", nil, errors.New("a part between => is empty")
		case open == 0 && i > 0:
			return "", nil, fmt.Errorf("%s: only the first part can be a condition without a function", text)
		case open == 0:
			base = text
		case open < 0:
			parts = append(parts, part{function: text})
		default:
			parts = append(parts, part{text[:open], text[open:]})
		}
	}
	if len(parts) > mostLevels {
		return "", nil, fmt.Errorf("%d functions: at most %d are supported", len(parts), mostLevels)
	}
	slices.Reverse(parts)
	return base, parts, nil
}

// probe returns the part as a probe of trace.
func (p *part) probe() string {
	name := p.function
	if call, ok := strings.CutPrefix(name, "SyS_"); ok {
		name = "sys_" + call
	}
	return name + clauses(p.condition)
}

// clauses returns the signature and the condition, without a condition that is always true.
func clauses(text string) string {
	signature, condition := text, ""
	if end := closing(text); end > 0 {
		signature, condition = text[:end], strings.TrimSpace(text[end:])
	}
	if isTrue(condition) {
		condition = ""
	}
	if strings.Trim(signature, "() ") == "" {
		signature = ""
	}
	if condition == "" {
		return "" // nothing refers to the arguments
	}
	return signature + " if " + condition
}

// isTrue reports whether a condition is "(true)".
func isTrue(condition string) bool { return strings.Trim(condition, "() ") == "true" }

// closing returns the index after the parenthesis that closes the first one, or 0.
func closing(text string) int {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// resolve finds the functions of the spec and compiles the conditions.
func (o *options) resolve(env *tool.Env, k *tool.Kernel, note func(string)) (*chain, error) {
	base, parts, err := parse(o.Spec)
	if err != nil {
		return nil, flags.Usage(fmt.Errorf("spec: %w", err))
	}
	f := fetch.Finder{Finder: target.Finder{Note: note}, TextSize: 32, DataMax: 64} // FETCH_DATA_MAX
	f.Types, _ = k.Types()
	set, c := &fetch.Set{}, &chain{}
	m := modes[o.Mode]
	text := m.function
	if base != "" && !isTrue(base) {
		text += m.signature + " if " + base
	}
	if err := c.add(&f, set, text, 0); errors.Is(err, target.ErrNotFound) {
		// The hook is refused, as where a kernel has no kprobes.
		note(fmt.Sprintf("the kernel has no function %s: it needs %s", m.function, m.needs))
		set.Instances = []tool.Instance{{Targets: []tool.Target{{Name: m.function}}}}
		set.Sites = []fetch.Site{{}}
		c.fill(set, 0)
	} else if err != nil {
		return nil, flags.Usage(err)
	}
	for i := range set.Instances {
		set.Instances[i].Hook = "fail"
	}
	for level, p := range parts {
		c.names = append(c.names, p.function)
		if err := c.add(&f, set, p.probe(), level); err != nil {
			return nil, flags.Usage(err)
		}
		if err := c.addReturns(&f, set, p.probe(), level); err != nil {
			return nil, flags.Usage(err)
		}
	}
	if len(set.Sites) > mostSites {
		return nil, flags.Usage(fmt.Errorf("spec: the functions have %d addresses: at most %d are supported", len(set.Sites), mostSites))
	}
	c.instances = set.Instances
	return c, nil
}

// add adds the entry of a function.
func (c *chain) add(f *fetch.Finder, set *fetch.Set, text string, level int) error {
	p, err := fetch.Parse(text)
	if err != nil {
		return err
	}
	if p.Spec.IsPattern() || p.Spec.Kind != target.Kernel || p.Spec.Return || p.Spec.Offset != 0 {
		return fmt.Errorf("%s: only names of kernel functions are supported", text)
	}
	err = f.Add(set, p)
	c.fill(set, level)
	return err
}

// addReturns adds the return of a function.
func (c *chain) addReturns(f *fetch.Finder, set *fetch.Set, text string, level int) error {
	p, err := fetch.Parse(text)
	if err != nil {
		return err
	}
	p.Spec.Return = true
	places, err := f.Find(p.Spec)
	if err != nil {
		return err
	}
	instances, places := target.Instances(places, false)
	for i := range instances {
		instances[i].First += uint64(len(set.Sites))
	}
	set.Instances = append(set.Instances, instances...)
	for _, place := range places {
		set.Sites = append(set.Sites, fetch.Site{Place: place, Probe: p})
	}
	c.fill(set, level)
	return nil
}

// fill sets the level of the sites that were added.
func (c *chain) fill(set *fetch.Set, level int) {
	for len(c.levels) < len(set.Sites) {
		c.levels = append(c.levels, uint32(level))
	}
}
