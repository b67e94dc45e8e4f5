package tplist

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

func onMachine(amd64, arm64 string) string {
	if runtime.GOARCH == "arm64" {
		return arm64
	}
	return amd64
}

// describe returns the declarations of a row's arguments.
func describe(r tooltest.Row) string {
	var out []string
	args, _ := r["args"].([]any)
	for _, a := range args {
		arg, _ := a.(map[string]any)
		text := fmt.Sprintf("%v %v", arg["type"], arg["name"])
		for _, key := range []string{"offset", "location"} {
			if v, ok := arg[key]; ok {
				text += fmt.Sprintf(" %s %v", key, v)
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// probes opens a library with two probes, one of them at two places.
func probes(t *testing.T) *native.Library {
	return native.Open(t, "libprobes.so", []string{"alpha", "beta"},
		native.Probe{Function: "alpha", Provider: "known", Name: "answer", Semaphore: true, Args: onMachine("8@%rdi -4@8(%rsp) 1@$-5 8f@%xmm0", "8@x0 -4@[sp, 8] 1@-5 8f@d0")},
		native.Probe{Function: "beta", Provider: "known", Name: "\x1b[31mred", Args: onMachine("2@%ax", "2@w0")},
		native.Probe{Function: "alpha", Provider: "known", Name: "twice"},
		native.Probe{Function: "beta", Provider: "known", Name: "twice"},
	)
}

// TestUSDT lists the probes of a file by path, of all files of a process, and of a deleted file.
func TestUSDT(t *testing.T) {
	lib := probes(t)
	answer := onMachine("uint64_t arg1 location %rdi, int32_t arg2 location 8(%rsp), uint8_t arg3 location $-5, double arg4 location %xmm0",
		"uint64_t arg1 location x0, int32_t arg2 location [sp, 8], uint8_t arg3 location -5, double arg4 location d0")
	check := func(file string, args ...string) {
		t.Helper()
		res := tooltest.JSON(t, Tool, append(args, "known:*"), nil)
		got := map[string]tooltest.Row{}
		for _, r := range res.Events {
			if r.Str("file") == file {
				got[r.Str("name")] = r
			}
		}
		if len(got) != 3 || len(res.Events) != 3 {
			t.Fatalf("%v: rows %v, want 3 of %s", args, res.Events, file)
		}
		r := got["known:answer"]
		if describe(r) != answer || r.Str("kind") != "usdt" || r.Num("places") != 1 || !r.Has("semaphore") {
			t.Errorf("%v: %v: %s, want %s and a semaphore", args, r, describe(r), answer)
		}
		if r := got["known:\x1b[31mred"]; describe(r) != onMachine("uint16_t arg1 location %ax", "uint16_t arg1 location w0") || r.Has("semaphore") {
			t.Errorf("%v: %v: %s", args, r, describe(r))
		}
		if r := got["known:twice"]; r.Num("places") != 2 || fmt.Sprint(r["args"]) != "[]" {
			t.Errorf("%v: %v, want two places and no arguments", args, r)
		}
	}
	check(lib.Path, "-l", lib.Path)
	pid := strconv.Itoa(os.Getpid())
	check(lib.Path, "-p", pid)
	check(lib.Path, "-p", pid, "-l", lib.Path)
	if err := os.Remove(lib.Path); err != nil {
		t.Fatal(err)
	}
	check(lib.Path+" (deleted)", "-p", pid)
}

// TestText checks the lines below rows, and that control characters of names are escaped.
func TestText(t *testing.T) {
	lib := probes(t)
	out := tooltest.Text(t, Tool, []string{"-vv", "-l", lib.Path, "--no-header"}, nil)
	location := onMachine(" at 8(%rsp)", " at [sp, 8]")
	if strings.Contains(out, "\x1b") || !strings.Contains(out, `known:\x1b[31mred`) || !strings.Contains(out, "\n    int32_t arg2"+location+"\n") ||
		strings.Count(out, "\n    place 0x") != 4 {
		t.Errorf("text %q", out)
	}
	if out := tooltest.Text(t, Tool, []string{"-l", lib.Path, "twice"}, nil); strings.Count(out, "\n") != 2 || !strings.Contains(out, "known:twice") {
		t.Errorf("without the provider: %q", out)
	}
	if out := tooltest.Text(t, Tool, []string{"-f", "-l", lib.Path, "--columns", "kind,name,places"}, nil); strings.Join(strings.Fields(out), " ") != "KIND NAME PLACES function alpha 1 function beta 1" {
		t.Errorf("functions: %q", out)
	}
}

// TestTracepoints compares all tracepoints and their fields with tracefs.
func TestTracepoints(t *testing.T) {
	tooltest.Tracefs(t)
	const dir = "/sys/kernel/tracing/"
	text, err := os.ReadFile(dir + "available_events")
	if err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(strings.Fields(string(text)), func(name string) bool { return strings.HasPrefix(name, "ftrace:") })
	slices.Sort(want)
	var got []string
	for _, r := range tooltest.JSON(t, Tool, nil, nil).Events {
		name := r.Str("name")
		got = append(got, name)
		args, _ := r["args"].([]any)
		if fields := fieldsIn(t, dir+"events/"+strings.Replace(name, ":", "/", 1)+"/format"); len(args) != fields || r.Str("kind") != "tracepoint" {
			t.Errorf("%s has %d arguments, tracefs has %d fields: %v", name, len(args), fields, r)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d tracepoints, want %d", len(got), len(want))
	}
	res := tooltest.JSON(t, Tool, []string{"sched_process_fork"}, nil)
	if len(res.Events) != 1 || !strings.Contains(describe(res.Events[0]), "pid_t child_pid offset ") {
		t.Errorf("sched_process_fork: %v", res.Events)
	}
}

// fieldsIn returns the number of fields of a format, except those before the empty line, which all
// tracepoints have.
func fieldsIn(t *testing.T, path string) (n int) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	isOwn := false
	for in := bufio.NewScanner(f); in.Scan(); {
		if in.Text() == "" {
			isOwn = true
		}
		if isOwn && strings.HasPrefix(in.Text(), "\tfield:") {
			n++
		}
	}
	return n
}

// TestKernel checks a function and a raw tracepoint whose types all kernels share.
func TestKernel(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		tooltest.Fails(t, Tool, []string{"--raw"}, 4, "BTF")
		t.Skip(err)
	}
	res := tooltest.JSON(t, Tool, []string{"-f", "vfs_fsync"}, nil)
	if len(res.Events) != 1 || describe(res.Events[0]) != "struct file * file, int datasync" || res.Events[0].Str("returns") != "int" ||
		res.Events[0].Str("kind") != "kernel_function" || res.Events[0].Has("module") {
		t.Errorf("vfs_fsync: %v", res.Events)
	}
	res = tooltest.JSON(t, Tool, []string{"--raw", "sched_process_ex?c"}, nil)
	if len(res.Events) != 1 {
		t.Fatalf("raw tracepoints: %v", res.Events)
	}
	var types []string
	args, _ := res.Events[0]["args"].([]any)
	for _, a := range args {
		arg, _ := a.(map[string]any)
		types = append(types, fmt.Sprint(arg["type"]))
	}
	if got := strings.Join(types, ", "); got != "struct task_struct *, pid_t, struct linux_binprm *" || res.Events[0].Str("kind") != "raw_tracepoint" {
		t.Errorf("arguments of sched_process_exec: %s: %v", got, res.Events[0])
	}
}

// TestModules checks that functions of a module have arguments if its types are known.
func TestModules(t *testing.T) {
	modules, err := os.ReadDir("/sys/kernel/btf")
	if err != nil {
		t.Skip(err)
	}
	if len(modules) < 2 {
		t.Skip("no loaded module has BTF")
	}
	described, functions := map[string]bool{}, map[string]map[string]bool{}
	for _, r := range tooltest.JSON(t, Tool, []string{"-f"}, nil).Events {
		module := r.Str("module")
		if module == "" {
			continue
		}
		if functions[module] == nil {
			functions[module] = map[string]bool{}
		}
		functions[module][r.Str("name")] = true
		described[module] = described[module] || r.Has("returns") && r.Has("args")
	}
	if len(functions) == 0 {
		t.Error("no functions of modules")
	}
	for module, functions := range functions {
		if !described[module] && hasDescribedFunction(t, module, functions) {
			t.Errorf("no function of module %s has arguments", module)
		}
	}
}

// hasDescribedFunction reports whether the types of a module contain one of these functions. Those of
// functions that the compiler has changed are missing. Modules such as crc16 have no functions that can be
// traced.
func hasDescribedFunction(t *testing.T, module string, functions map[string]bool) bool {
	t.Helper()
	spec, err := btf.LoadKernelModuleSpec(module)
	if errors.Is(err, os.ErrNotExist) {
		return false // unloaded
	}
	if err != nil {
		t.Fatal(err)
	}
	for typ, err := range spec.All() {
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := typ.(*btf.Func); ok && functions[f.Name] {
			return true
		}
	}
	return false
}

// TestWithoutTracefs checks that raw tracepoints are listed instead of those of tracefs.
func TestWithoutTracefs(t *testing.T) {
	var notes []string
	f := &finder{Finder: target.Finder{Tracing: t.TempDir(), Note: func(s string) { notes = append(notes, s) }}, types: map[string]*btf.Spec{}}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Skip(err)
	}
	f.types[""], f.modules = spec, func() ([]string, error) { return nil, nil }
	rows, err := (&options{Pattern: "sched:sched_swi*"}).find(f)
	if err != nil || len(rows) != 1 || string(rows[0].Name) != "sched_switch" || rows[0].Kind != "raw_tracepoint" || len(notes) != 1 {
		t.Errorf("%v, %v, notes %q", rows, err, notes)
	}
}

func TestErrors(t *testing.T) {
	lib := probes(t)
	tooltest.Fails(t, Tool, []string{"--raw", "-f"}, 2, "--raw")
	tooltest.Fails(t, Tool, []string{"-p", strconv.Itoa(os.Getpid()), "--container", "x"}, 2, "only one of")
	tooltest.Fails(t, Tool, []string{"-l", "/no/such/file"}, 2, "no such file")
	tooltest.Fails(t, Tool, []string{"-l", "nosuchlibrary"}, 2, "nosuchlibrary: not found")
	tooltest.Fails(t, Tool, []string{"-l", lib.Path, "nothing"}, 0, `no USDT probe that matches "nothing" in `+lib.Path+" found")
}
