// Package language knows runtimes of programming languages: their files, and what to do if these
// have no USDT probes. It is shared by the tools that trace method calls, garbage collections,
// objects and threads.
package language

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/limit"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/usdt"
	"github.com/corescope/corescope/internal/value"
)

// Language is a language, whose number is that of enum language.
type Language struct {
	Name string
	// files are patterns of the names of files that contain the runtime.
	files []string
	// remedy states which builds have probes.
	remedy string
}

// all returns the languages, in the order of enum language.
func all() []Language {
	libc := append(binary.Libc(), "libpthread.so.0", "libpthread-2.*.so")
	return []Language{
		{Name: "none"},
		{"java", []string{"libjvm.so"}, "OpenJDK has probes if it is configured with --enable-dtrace, as in Debian, Fedora and Red Hat"},
		{"node", []string{"node", "nodejs", "libnode.so*"}, "the symbol v8::internal::Heap::CollectGarbage is needed"},
		{"perl", []string{"perl", "perl5*", "libperl.so*"}, "Perl has probes if it is configured with -Dusedtrace, as in Fedora; Debian's has none"},
		{"php", []string{"php", "php[0-9]*", "php-fpm*", "php-cgi*", "libphp*.so*"}, "PHP has probes if it is configured with --enable-dtrace, as in Debian 12, but not 13"},
		{"python", []string{"python", "python[0-9]*", "libpython*.so*"}, "Python has probes if it is configured with --with-dtrace, as in Debian and Fedora; none has probes of functions from 3.12 on"},
		{"ruby", []string{"ruby", "ruby[0-9]*", "libruby*.so*"}, "Ruby has probes if it is configured with --enable-dtrace, as in Debian 12, but not 13"},
		{"tcl", []string{"tclsh*", "wish*", "libtcl[0-9]*.so*"}, "Tcl has probes if it is configured with --enable-dtrace, as in Fedora; Debian's has none"},
		{"c", libc, "the C library is not linked dynamically"},
	}
}

// switches returns how probes are enabled that fire only in programs that were started with them.
func (l *Language) switches() (word string, probes []string, remedy string) {
	switch l.Name {
	case "java":
		return "DTrace", []string{":method__", ":object__"},
			"Java fires probes of methods and objects only if it is started with -XX:+ExtendedDTraceProbes (from JDK 19 on -XX:+DTraceMethodProbes, -XX:+DTraceAllocProbes)"
	case "php":
		return "USE_ZEND_DTRACE", []string{":function__", ":compile__"}, "PHP fires probes only if it is started with the environment variable USE_ZEND_DTRACE=1"
	}
	return "", nil, ""
}

// noteSwitch adds a notice if the run needs probes that do not fire in the process.
func (l *Language) noteSwitch(p *tool.Plan, pid uint32, probes []string) {
	word, gated, remedy := l.switches()
	isGated := func(probe string) bool {
		return slices.ContainsFunc(gated, func(part string) bool { return strings.Contains(probe, part) })
	}
	if !slices.ContainsFunc(probes, isGated) {
		return
	}
	for _, file := range []string{"cmdline", "environ"} {
		data, err := limit.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file), limit.Arguments)
		if bytes.Contains(data, []byte(word)) || err != nil {
			return
		}
	}
	p.Note(fmt.Sprintf("process %d: %s", pid, remedy))
}

// Name returns the name of a value of enum language.
func Name(number uint32) string {
	if l := all(); int(number) < len(l) {
		return l[number].Name
	}
	return fmt.Sprint(number)
}

// Options selects a language.
type Options struct {
	Language string `flag:"language,l" arg:"LANGUAGE" help:"only processes of this language"`
	// Last, if set, is a language that is only traced if it is selected, or if a process runs no other.
	Last string
	// Entries, if set, states that the tool is of no use without the entries of functions.
	Entries bool
}

// Process selects a process and a language.
type Process struct {
	Word string `pos:"language" of:"java,node,perl,php,python,ruby,tcl,c,none" skip:"others" sets:"language" help:"same as --language, for compatibility with BCC's manual pages"`
	PID  uint32 `pos:"pid" sets:"pid" min:"1" help:"process to trace; all processes by default"`
	Options
}

// Aliases returns an alias per language: its name and the suffix.
func Aliases(suffix string, languages ...string) []tool.Alias {
	var out []tool.Alias
	for _, name := range languages {
		out = append(out, tool.Alias{Name: name + suffix, Args: []string{"--language", name}})
	}
	return out
}

// Hooks are the languages of a tool, with their hooks.
type Hooks map[string][]string

// Names returns the names of the languages.
func (h Hooks) Names() (names []string) {
	for _, l := range all() {
		if h[l.Name] != nil {
			names = append(names, l.Name)
		}
	}
	return names
}

// Plan adds the files of all languages to the plan, and removes the hooks of those that are not
// wanted. pids are the processes of the run.
func (o *Options) Plan(p *tool.Plan, object tool.Loader, hooks Hooks, pids []uint32) error {
	if o.Language != "" && hooks[o.Language] == nil {
		return fmt.Errorf("--language: unknown language %q: want %s", o.Language, strings.Join(hooks.Names(), ", "))
	}
	p.Files = map[string]binary.Files{}
	for _, l := range all() {
		if len(hooks[l.Name]) > 0 {
			p.Files[l.Name] = binary.Files{Names: l.files, Alone: l.Name == "c" || l.Name == "ruby"}
		}
		if l.Name == "ruby" && o.Language == "" && len(pids) == 0 {
			// Ruby's own code for these probes can crash a program that defines classes.
			for _, hook := range hooks["ruby"] {
				if slices.Contains([]string{"ruby_entry", "ruby_return", "rubymethod"}, hook) {
					p.Without = append(p.Without, hook)
				}
			}
		}
		isLast := o.Language == "" && l.Name == o.Last && len(pids) == 0
		if isLast || o.Language != "" && l.Name != o.Language {
			p.Without = append(p.Without, hooks[l.Name]...)
		}
	}
	if len(pids) > 0 && o.Language != "none" {
		p.Resolve = func(p *tool.Plan, _ *tool.Kernel) error {
			spec, err := object()
			if err != nil {
				return err
			}
			return o.detect(p, spec, hooks, pids)
		}
	}
	return nil
}

// detect removes the hooks of languages that the processes do not run. It fails if a process only runs
// languages without the probes that are needed.
func (o *Options) detect(p *tool.Plan, spec *ebpf.CollectionSpec, hooks Hooks, pids []uint32) error {
	probes := probesOf(spec, p.Without)
	runs := map[string]bool{}
	for _, pid := range pids {
		found, err := languagesOf(pid, probes)
		if err != nil {
			return err
		}
		if len(found) > 1 {
			found = slices.DeleteFunc(found, func(f runtime) bool { return f.Name == o.Last })
		}
		var without []string
		for _, f := range found {
			runs[f.Name] = true
			if f.hasProbes {
				f.noteSwitch(p, pid, probes[f.Name])
			}
			if f.firesNoEntries() && slices.Contains(probes[f.Name], "python:function__entry") {
				text := f.path + " fires no probe at the entry of functions"
				if o.Entries {
					without = append(without, text+", which the time of calls needs: Python 3.6 to 3.10 fires it; without --latency, calls are counted when they return")
				} else {
					p.Note(fmt.Sprintf("process %d: %s: only returns are shown; Python 3.6 to 3.10 fires it", pid, text))
				}
			}
			if !f.hasProbes {
				without = append(without, fmt.Sprintf("%s has none of the probes %s: %s", f.path, strings.Join(probes[f.Name], ", "), f.remedy))
			}
		}
		if len(without) > 0 && len(without) == len(found) {
			return fmt.Errorf("process %d cannot be traced: %s", pid, strings.Join(without, "; "))
		}
	}
	for name, of := range hooks {
		if len(runs) > 0 && !runs[name] { // otherwise the process can load a runtime later
			p.Without = append(p.Without, of...)
		}
	}
	return nil
}

// probesOf returns the probes, such as "python:gc__start", and functions of each language in the
// sections of the object, except those of hooks that are not attached.
func probesOf(spec *ebpf.CollectionSpec, without []string) map[string][]string {
	out := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		hook, _, _ := strings.Cut(name, "__")
		kind, section, _ := strings.Cut(spec.Programs[name].SectionName, "/")
		language, what, ok := strings.Cut(section, ":")
		if ok && (kind == "usdt" || kind == "uprobe") && !slices.Contains(without, hook) {
			out[language] = append(out[language], strings.Split(what, ",")...)
		}
	}
	return out
}

// runtime is a language that a process runs.
type runtime struct {
	Language
	path      string
	hasProbes bool
}

// firesNoEntries reports whether the runtime has a probe at the entry of functions that does not fire.
func (r *runtime) firesNoEntries() bool {
	isNamed := func(pattern string) bool { ok, _ := path.Match(pattern, path.Base(r.path)); return ok }
	return r.hasProbes && (isNamed("python3.11*") || isNamed("libpython3.11*.so*"))
}

// languagesOf returns the languages whose files a process has mapped.
func languagesOf(pid uint32, probes map[string][]string) ([]runtime, error) {
	mapped, err := binary.Executable(pid)
	if err != nil {
		return nil, err
	}
	var out []runtime
	for _, l := range all() {
		has := runtime{Language: l}
		for i := range mapped {
			m := &mapped[i]
			isNamed := func(name string) bool { ok, _ := path.Match(name, m.Base()); return ok }
			if len(probes[l.Name]) == 0 || !slices.ContainsFunc(l.files, isNamed) {
				continue
			}
			has.path = m.Path
			if has.hasProbes = haveProbe(m, probes[l.Name]); has.hasProbes {
				break
			}
		}
		if has.path != "" {
			out = append(out, has)
		}
	}
	return out, nil
}

// haveProbe reports whether a file has one of the probes or functions, or cannot be read.
func haveProbe(m *binary.Mapped, names []string) bool {
	f, err := m.Open()
	if err != nil {
		return true
	}
	defer f.Close()
	isWanted := func(s usdt.Site) bool { return slices.Contains(names, s.Provider+":"+s.Name) }
	if sites, err := usdt.Read(f); err != nil || slices.ContainsFunc(sites, isWanted) {
		return true
	}
	functions, err := f.Functions()
	return err != nil || slices.ContainsFunc(functions, func(fn binary.Function) bool { return slices.Contains(names, fn.Name) })
}

// Text returns a name as language_name() stores it: without a NUL byte, it is the end of a longer name.
func Text(b []byte) value.Name {
	if bytes.IndexByte(b, 0) < 0 {
		return "..." + value.NameOf(b)
	}
	return value.NameOf(b)
}

// Crash describes the danger of Ruby's probes of methods.
const Crash = `Caution: with the probes of methods enabled, Ruby 3.1 can crash while it defines classes, mostly when a program starts: its own code for these probes (rb_dtrace_setup) reads the name of a class that has none yet. This happens with any tracer; in a test 1 of 8 programs crashed at their start. Therefore the methods of Ruby are only traced with -l ruby or a PID, and with a PID only in this process.`

// Builds describes in manual pages which runtimes have probes.
const Builds = `Runtimes have probes only if they are built with them: OpenJDK with --enable-dtrace (Debian, Fedora, Red Hat), PHP, Ruby and Tcl with --enable-dtrace (PHP and Ruby of Debian 12, but not 13; Fedora), Python with --with-dtrace (Debian, Fedora), Perl with -Dusedtrace (Fedora). Some must be enabled when the program starts: Java's probes of methods, objects and monitors with -XX:+ExtendedDTraceProbes (from JDK 19 on -XX:+DTraceMethodProbes, -XX:+DTraceAllocProbes), PHP's with the environment variable USE_ZEND_DTRACE=1. Python has no probes of functions from 3.12 on, and Node.js no probes from 19 on. PHP fires no probes for functions that are written in C. If the given process has a runtime without probes, the tool fails, and names the build that has them.`
