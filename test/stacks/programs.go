package main

import "slices"

// program is a test program with a known stack.
type program struct {
	name        string
	description string
	build       func(*builder) error
	// chain are patterns for the functions of the stack, innermost first. rest matches any
	// number of functions.
	chain []string
	// heads is the number of innermost functions that may be the interrupted one.
	heads int
	// others are patterns for other functions that may be on the stack.
	others []string
	// options are additional options of profile.
	options []string
	// exits makes the program exit while the tools still run.
	exits bool
}

// rest matches any number of functions.
const rest = "*"

// Patterns for start-up code and libraries.
var (
	startC    = []string{`_start`, `__libc_start_call_main`, `__libc_start_main.*`, `_dl_.*`, `generic_start_main.*`}
	startRust = append([]string{`std::.*`, `core::.*`, `<.*`, `__rust.*`, `main`}, startC...)
	startGo   = []string{`runtime\..*`}
	anyName   = []string{`[\w<~:(].*`}
)

func shared(flags ...string) func(*builder) error {
	return func(b *builder) error {
		lib, err := b.source("library.c")
		if err != nil {
			return err
		}
		if err := b.run("gcc", append([]string{"-O2", "-DLIBRARY", "-shared", "-fPIC", "-o", "libchain.so", lib}, flags...)...); err != nil {
			return err
		}
		return b.c("library.c", append([]string{"-L.", "-lchain", "-Wl,-rpath," + b.dir}, flags...)...)
	}
}

// after builds a C program and then calls modify.
func after(modify func(*builder) error, source string, flags ...string) func(*builder) error {
	return func(b *builder) error {
		if err := b.c(source, flags...); err != nil {
			return err
		}
		return modify(b)
	}
}

func c(source string, flags ...string) func(*builder) error {
	return func(b *builder) error { return b.c(source, flags...) }
}

func cpp(flags ...string) func(*builder) error {
	return func(b *builder) error {
		return b.compile("g++", "chain.cc", append([]string{"-O2", withoutFP}, flags...)...)
	}
}

func golang(flags ...string) func(*builder) error {
	return func(b *builder) error { return b.golang(flags...) }
}

func rust(flags ...string) func(*builder) error {
	return func(b *builder) error {
		return b.compile("rustc", "chain.rs", append([]string{"--edition", "2021", "-O"}, flags...)...)
	}
}

func python(version string, option ...string) func(*builder) error {
	return func(b *builder) error {
		b.cleanup = removeJITFiles
		return b.python(version, option...)
	}
}

func jitted(flags ...string) func(*builder) error {
	return func(b *builder) error {
		b.cleanup = removeJITFiles
		return b.c("jit.c", flags...)
	}
}

const (
	withFP    = "-fno-omit-frame-pointer"
	withoutFP = "-fomit-frame-pointer"
)

// programs returns all test programs. C programs have no frame pointers unless the description
// says so.
func programs() []program {
	calls := []string{"leaf", "three", "two", "one", "main"}
	jit := []string{"leaf", "three", "jitted function", "one", "main"}
	deep := append(append([]string{"leaf"}, slices.Repeat([]string{"down"}, 300)...), "main")
	goCalls := []string{`main\.leaf`, `main\.\(\*shape\)\.area`, `main\.measure`, `main\.main`, `runtime\.main`}
	rustCalls := []string{`.*::leaf(::.*)?`, `<.*Square as .*Shape>::area(::.*)?|_\$LT\$.*Square.*Shape\$GT\$::area::.*`, `.*::measure(::.*|<.*)?`, `.*::main(::.*)?`}
	pythonCalls := []string{`py::leaf:.*`, rest, `py::two:.*`, rest, `py::one:.*`, rest, `py::<module>:.*`, rest, `Py_RunMain`, rest, `Py_BytesMain|main`}
	all := []program{
		{name: "chain_fp", description: "C, frame pointers", build: c("chain.c", withFP), chain: calls},
		{name: "chain_nofp", description: "C", build: c("chain.c", withoutFP), chain: calls},
		{name: "chain_static", description: "C, static, no PIE", build: c("chain.c", withoutFP, "-static", "-no-pie"), chain: calls},
		{name: "chain_stripped", description: "C, stripped", build: after((*builder).strip, "chain.c", withoutFP), chain: calls},
		{name: "chain_debuglink", description: "C, symbols found by .gnu_debuglink", build: after((*builder).debugLink, "chain.c", withoutFP, "-Wl,--build-id=none"), chain: calls},
		{name: "chain_buildid", description: "C, symbols found by build-id", build: after((*builder).debugBuildID, "chain.c", withoutFP), chain: calls},
		{name: "chain_minidebug", description: "C, symbols in .gnu_debugdata", build: after((*builder).miniDebug, "chain.c", withoutFP), chain: calls},
		{name: "shared_fp", description: "C, through a library, frame pointers", build: shared(withFP), chain: calls},
		{name: "shared_nofp", description: "C, through a library", build: shared(withoutFP), chain: calls},
		{name: "qsort", description: "C, called by libc", build: c("qsort.c", withoutFP), chain: []string{"leaf", "compare", rest, "qsort.*|__qsort_r", "sorter", "main"}, others: []string{"msort_with_tmp.*"}},
		{name: "deep300", description: "C, 300 calls deep", build: c("deep.c", withoutFP), chain: deep},
		{name: "signal", description: "C, in a signal handler", build: c("signal.c", withoutFP), chain: []string{"leaf", "handler", "__restore_rt|__kernel_rt_sigreturn", "interrupted", "one", "main"}},
		{name: "vdso", description: "C, in the vDSO", build: c("vdso.c", withoutFP), chain: []string{"__vdso_clock_gettime|__kernel_clock_gettime", "clock_gettime.*|__clock_gettime.*", "leaf", "two", "one", "main"}, heads: 3},
		{name: "jit_perfmap", description: "C and JIT-compiled code, perf map, frame pointers", build: jitted(withFP), chain: jit},
		{name: "jit_dump", description: "C and JIT-compiled code, jitdump, frame pointers", build: jitted(withFP, "-DJITDUMP"), chain: jit},
		{name: "jit_nofp", description: "C without frame pointers and JIT-compiled code, perf map", build: jitted(withoutFP), chain: jit},
		{name: "memfd", description: "C, from a memfd", build: c("chain.c", withoutFP, "-DMEMFD"), chain: calls},
		{name: "deleted", description: "C, file deleted", build: after((*builder).deleted, "chain.c", withoutFP), chain: calls},
		{name: "mntns", description: "C, in another mount namespace", build: after((*builder).mountNamespace, "chain.c", withoutFP), chain: calls},
		{name: "exited", description: "C, exited before the report", build: c("chain.c", withoutFP), chain: calls, exits: true},
		{name: "cpp", description: "C++: a template, a virtual function", build: cpp(), chain: []string{cppLeaf, cppArea, cppMeasure, "main"}},
		{name: "cpp_inlines", description: "C++ with -g; corescope with --inlines", build: cpp("-g"), options: []string{"--inlines"},
			chain: []string{cppLeaf, `(shapes::)?inlined<.*`, cppArea, cppMeasure, "main"}},
		{name: "rust", description: "Rust", build: rust(), chain: rustCalls, others: startRust},
		{name: "rust_v0", description: "Rust, v0 mangling", build: rust("-C", "symbol-mangling-version=v0"), chain: rustCalls, others: startRust},
		{name: "go", description: "Go", build: golang(), chain: goCalls, others: startGo},
		{name: "go_stripped", description: "Go, stripped", build: golang("-ldflags=-s -w"), chain: goCalls, others: startGo},
		{name: "go_pie", description: "Go, PIE", build: golang("-buildmode=pie"), chain: goCalls, others: startGo},
		{name: "go_inlines", description: "Go; corescope with --inlines", build: golang(), chain: slices.Insert(slices.Clone(goCalls), 1, `main\.inlined`), others: startGo, options: []string{"--inlines"}},
		{name: "python", description: "CPython, interpreter functions", build: python("3.6"), chain: []string{rest, "_PyEval_EvalFrameDefault", rest, "Py_RunMain", rest, "Py_BytesMain|main"}, others: anyName},
		{name: "python_perfmap", description: "CPython, perf map (-X perf)", build: python("3.12", "-X", "perf"), chain: append([]string{rest}, pythonCalls...), others: anyName},
		{name: "python_jitdump", description: "CPython, jitdump (-X perf_jit)", build: python("3.13", "-X", "perf_jit"), chain: append([]string{rest}, pythonCalls...), others: anyName},
		{name: "node_perfmap", description: "Node, perf map", build: (*builder).node, chain: []string{js("leaf"), js("two"), js("one"), js(""), rest, `node::Start\(.*`}, others: anyName},
	}
	for i := range all {
		if all[i].others == nil || all[i].name == "qsort" {
			all[i].others = append(all[i].others, startC...)
		}
		all[i].heads = max(all[i].heads, 1)
	}
	return all
}

// Functions of chain.cc.
const (
	cppLeaf    = `(unsigned ?long ?)?shapes::leaf<.*` // bpftrace's JSON has no spaces
	cppArea    = `shapes::Square::area\(.*`
	cppMeasure = `shapes::measure\(.*`
)

// js returns the pattern for a JavaScript function of V8, compiled by any tier.
func js(name string) string { return `(\w+:)?[~*^+']*` + name + ` .*chain\.js.*` }
