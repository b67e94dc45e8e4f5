package main

import "slices"

// program is one whose stacks are known.
type program struct {
	name  string
	what  string // in a few words
	build func(*builder) error
	// chain is the functions of each stack as patterns, the innermost first; rest stands for
	// any number of others.
	chain []string
	// heads is how many of the first functions may have been the interrupted one.
	heads int
	// others are patterns of functions that may be anywhere else.
	others []string
	// options are what profile is run with beside others.
	options []string
	// exits has it end while the tools still run.
	exits bool
}

// rest is any number of functions, of which names tells nothing.
const rest = "*"

// What calls main, and what libraries do in between.
var (
	startC    = []string{`_start`, `__libc_start_call_main`, `__libc_start_main.*`, `_dl_.*`, `generic_start_main.*`}
	startRust = append([]string{`std::.*`, `core::.*`, `<.*`, `__rust.*`, `main`}, startC...)
	startGo   = []string{`runtime\..*`}
	anyName   = []string{`[\w<~:(].*`}
)

func shared(what string, flags ...string) func(*builder) error {
	return func(b *builder) error {
		lib, err := b.source("library.c")
		if err != nil {
			return err
		}
		if err := b.do("gcc", append([]string{"-O2", "-DLIBRARY", "-shared", "-fPIC", "-o", "libchain.so", lib}, flags...)...); err != nil {
			return err
		}
		return b.c("library.c", append([]string{"-L.", "-lchain", "-Wl,-rpath," + b.dir}, flags...)...)
	}
}

// after makes a C program and does one thing more to it.
func after(more func(*builder) error, source string, flags ...string) func(*builder) error {
	return func(b *builder) error {
		if err := b.c(source, flags...); err != nil {
			return err
		}
		return more(b)
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

func python(least string, option ...string) func(*builder) error {
	return func(b *builder) error {
		b.ended = removeJITFiles
		return b.python(least, option...)
	}
}

func jitted(flags ...string) func(*builder) error {
	return func(b *builder) error {
		b.ended = removeJITFiles
		return b.c("jit.c", flags...)
	}
}

const (
	withFP    = "-fno-omit-frame-pointer"
	withoutFP = "-fomit-frame-pointer"
)

// programs are all of them; those of C have no frame pointers unless they say so.
func programs() []program {
	calls := []string{"leaf", "three", "two", "one", "main"}
	jit := []string{"leaf", "three", "jitted function", "one", "main"}
	deep := append(append([]string{"leaf"}, slices.Repeat([]string{"down"}, 300)...), "main")
	goCalls := []string{`main\.leaf`, `main\.\(\*shape\)\.area`, `main\.measure`, `main\.main`, `runtime\.main`}
	rustCalls := []string{`.*::leaf(::.*)?`, `<.*Square as .*Shape>::area(::.*)?|_\$LT\$.*Square.*Shape\$GT\$::area::.*`, `.*::measure(::.*|<.*)?`, `.*::main(::.*)?`}
	pythonCalls := []string{`py::leaf:.*`, rest, `py::two:.*`, rest, `py::one:.*`, rest, `py::<module>:.*`, rest, `Py_RunMain`, rest, `Py_BytesMain|main`}
	all := []program{
		{name: "chain_fp", what: "C, frame pointers", build: c("chain.c", withFP), chain: calls},
		{name: "chain_nofp", what: "C", build: c("chain.c", withoutFP), chain: calls},
		{name: "chain_static", what: "C, static, no PIE", build: c("chain.c", withoutFP, "-static", "-no-pie"), chain: calls},
		{name: "chain_stripped", what: "C, stripped", build: after((*builder).strip, "chain.c", withoutFP), chain: calls},
		{name: "chain_debuglink", what: "C, symbols by .gnu_debuglink", build: after((*builder).link, "chain.c", withoutFP, "-Wl,--build-id=none"), chain: calls},
		{name: "chain_buildid", what: "C, symbols by build-id", build: after((*builder).byID, "chain.c", withoutFP), chain: calls},
		{name: "chain_minidebug", what: "C, symbols in .gnu_debugdata", build: after((*builder).miniDebug, "chain.c", withoutFP), chain: calls},
		{name: "shared_fp", what: "C, through a library, frame pointers", build: shared("", withFP), chain: calls},
		{name: "shared_nofp", what: "C, through a library", build: shared("", withoutFP), chain: calls},
		{name: "qsort", what: "C, called by libc", build: c("qsort.c", withoutFP), chain: []string{"leaf", "compare", rest, "qsort.*|__qsort_r", "sorter", "main"}, others: []string{"msort_with_tmp.*"}},
		{name: "deep300", what: "C, 300 calls deep", build: c("deep.c", withoutFP), chain: deep},
		{name: "signal", what: "C, in a signal handler", build: c("signal.c", withoutFP), chain: []string{"leaf", "handler", "__restore_rt|__kernel_rt_sigreturn", "interrupted", "one", "main"}},
		{name: "vdso", what: "C, in the vDSO", build: c("vdso.c", withoutFP), chain: []string{"__vdso_clock_gettime|__kernel_clock_gettime", "clock_gettime.*|__clock_gettime.*", "leaf", "two", "one", "main"}, heads: 3},
		{name: "jit_perfmap", what: "C, through code of a JIT compiler, perf map, frame pointers", build: jitted(withFP), chain: jit},
		{name: "jit_dump", what: "the same, jitdump", build: jitted(withFP, "-DJITDUMP"), chain: jit},
		{name: "jit_nofp", what: "the same, perf map, C without frame pointers", build: jitted(withoutFP), chain: jit},
		{name: "memfd", what: "C, from a memfd", build: c("chain.c", withoutFP, "-DMEMFD"), chain: calls},
		{name: "deleted", what: "C, file deleted", build: after((*builder).deleted, "chain.c", withoutFP), chain: calls},
		{name: "mntns", what: "C, in another mount namespace", build: after((*builder).elsewhere, "chain.c", withoutFP), chain: calls},
		{name: "exited", what: "C, ended before the stacks are shown", build: c("chain.c", withoutFP), chain: calls, exits: true},
		{name: "cpp", what: "C++: a template, a virtual function", build: cpp(), chain: []string{cppLeaf, cppArea, cppMeasure, "main"}},
		{name: "cpp_inlines", what: "the same with -g; ours with --inlines", build: cpp("-g"), options: []string{"--inlines"},
			chain: []string{cppLeaf, `(shapes::)?inlined<.*`, cppArea, cppMeasure, "main"}},
		{name: "rust", what: "Rust", build: rust(), chain: rustCalls, others: startRust},
		{name: "rust_v0", what: "Rust, v0 names", build: rust("-C", "symbol-mangling-version=v0"), chain: rustCalls, others: startRust},
		{name: "go", what: "Go", build: golang(), chain: goCalls, others: startGo},
		{name: "go_stripped", what: "Go, stripped", build: golang("-ldflags=-s -w"), chain: goCalls, others: startGo},
		{name: "go_pie", what: "Go, PIE", build: golang("-buildmode=pie"), chain: goCalls, others: startGo},
		{name: "go_inlines", what: "Go; ours with --inlines", build: golang(), chain: slices.Insert(slices.Clone(goCalls), 1, `main\.inlined`), others: startGo, options: []string{"--inlines"}},
		{name: "python", what: "CPython, its own functions", build: python("3.6"), chain: []string{rest, "_PyEval_EvalFrameDefault", rest, "Py_RunMain", rest, "Py_BytesMain|main"}, others: anyName},
		{name: "python_perfmap", what: "CPython, perf map (-X perf)", build: python("3.12", "-X", "perf"), chain: append([]string{rest}, pythonCalls...), others: anyName},
		{name: "python_jitdump", what: "CPython, jitdump (-X perf_jit)", build: python("3.13", "-X", "perf_jit"), chain: append([]string{rest}, pythonCalls...), others: anyName},
		{name: "node_perfmap", what: "Node, perf map", build: (*builder).node, chain: []string{js("leaf"), js("two"), js("one"), js(""), rest, `node::Start\(.*`}, others: anyName},
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

// js is how V8 writes a function, whatever it was made by.
func js(name string) string { return `(\w+:)?[~*^+']*` + name + ` .*chain\.js.*` }
