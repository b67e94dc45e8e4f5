package target

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/probe"
)

// kernel finds kernel functions. For a pattern it returns only functions that ftrace can trace, if
// their list is available.
func (f *Finder) kernel(s *Spec, match func(string) bool) ([]Place, error) {
	proc := f.Proc
	if proc == "" {
		proc = "/proc"
	}
	file, err := os.Open(filepath.Join(proc, "kallsyms"))
	if err != nil {
		return nil, fmt.Errorf("read kernel symbols: %w", err)
	}
	defer file.Close()
	places, err := symbols(file, match)
	if call, ok := strings.CutPrefix(s.Name, "sys_"); ok && err == nil && len(places) == 0 && !s.IsPattern() {
		return f.syscall(s, call)
	}
	if err != nil || !s.IsPattern() {
		return moved(places, s.Offset), err
	}
	traceable, err := f.traceable()
	if err != nil || len(traceable) == 0 {
		return places, nil // attaching fails for functions that cannot be traced
	}
	var out []Place
	for _, p := range places {
		if traceable[p.Name] {
			out = append(out, p)
		}
	}
	return out, nil
}

// syscall finds the functions of a system call, which have prefixes since Linux 4.17 (d5a00528b58c):
// calls of 32-bit and x32 tasks have functions of their own where the kernel supports them.
func (f *Finder) syscall(s *Spec, call string) ([]Place, error) {
	if s.Offset != 0 {
		return nil, nil
	}
	names := map[string]bool{}
	for _, prefix := range syscallPrefixes() {
		names[prefix+call] = true
	}
	wrappers := *s
	wrappers.Name = "(" + call + ")" // not a system call by name
	places, err := f.kernel(&wrappers, func(name string) bool { return names[name] })
	for i := range places {
		places[i].IsSyscall, places[i].IsIA32 = true, strings.HasPrefix(places[i].Name, prefixIA32)
	}
	return places, err
}

// prefixIA32 is the prefix of functions whose arguments are in the registers of 32-bit x86.
const prefixIA32 = "__ia32_"

func syscallPrefixes() []string {
	return map[string][]string{
		"amd64": {"__x64_sys_", prefixIA32 + "sys_", prefixIA32 + "compat_sys_", "__x64_compat_sys_"},
		"arm64": {"__arm64_sys_", "__arm64_compat_sys_"},
	}[runtime.GOARCH]
}

func moved(places []Place, offset uint64) []Place {
	for i := range places {
		places[i].Offset = offset
		if places[i].Address != 0 {
			places[i].Address += offset
		}
	}
	return places
}

// symbols parses the functions in lines "address type name[\t[module]]".
func symbols(r io.Reader, match func(string) bool) ([]Place, error) {
	var places []Place
	in := bufio.NewScanner(r)
	for in.Scan() {
		line, module, _ := strings.Cut(in.Text(), "\t")
		fields := strings.Fields(line)
		if len(fields) != 3 || !strings.Contains("tTwW", fields[1]) || isPart(fields[2]) || !match(fields[2]) {
			continue
		}
		addr, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("parse kernel symbol: %w", err)
		}
		places = append(places, Place{
			Target: probe.Target{Name: fields[2], Address: addr},
			Module: strings.Trim(module, "[]"),
		})
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read kernel symbols: %w", err)
	}
	return places, nil
}

// isPart reports whether a symbol is not a function: padding before a function, or its cold part,
// which the compiler has moved elsewhere.
func isPart(name string) bool {
	return strings.HasPrefix(name, "__pfx_") || strings.HasPrefix(name, "__cfi_") || strings.Contains(name, ".cold")
}

// traceable returns the functions that ftrace can trace.
func (f *Finder) traceable() (map[string]bool, error) {
	dir, err := f.TracingDir()
	if err != nil {
		return nil, err
	}
	file, err := os.Open(filepath.Join(dir, "available_filter_functions"))
	if err != nil {
		return nil, fmt.Errorf("read traceable functions: %w", err)
	}
	defer file.Close()
	names := map[string]bool{}
	in := bufio.NewScanner(file)
	for in.Scan() {
		name, _, _ := strings.Cut(in.Text(), " ")
		names[name] = true
	}
	return names, in.Err()
}
