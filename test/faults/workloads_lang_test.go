package faults

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/corescope/corescope/internal/languagetest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// languageRuntime places a library with these probes.
func languageRuntime(language string, names ...string) func(testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		functions, probes := languagetest.Probes(names...)
		return native.Write(t, filepath.Join(t.TempDir(), languagetest.File(language)), functions, probes...).Path
	}
}

// hits hits these probes n times, in this order.
func hits(names ...string) func(n int, path string) (int, error) {
	return func(n int, path string) (int, error) {
		lib := libraries[path]
		if lib == nil {
			lib = &native.Library{Path: path}
			if err := lib.Load(names...); err != nil {
				return 0, err
			}
			libraries[path] = lib
		}
		name := languagetest.Name("name")
		for range n {
			for _, probe := range names {
				lib.Call(probe, native.Call{Args: [7]uint64{name, name, name, name, name, name}})
			}
		}
		return n, nil
	}
}

func pythonFunction() []string { return []string{"python:function__entry", "python:function__return"} }

func pythonCollection() []string { return []string{"python:gc__start", "python:gc__done"} }

func languageJobs() map[string]func(int, string) (int, error) {
	return map[string]func(int, string) (int, error){
		"call Python":    hits(pythonFunction()...),
		"collect Python": hits(pythonCollection()...),
		"enter Python":   hits("python:function__entry"),
		"create Ruby":    hits("ruby:object__create"),
		"start Java":     hits("hotspot:thread__start"),
	}
}

// languageWorkloads are those of tools for runtimes of languages.
func languageWorkloads() map[string]workload {
	byPID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--pid", strconv.Itoa(l.pid)}, more...) }
	}
	return map[string]workload{
		"ucalls": {
			place: languageRuntime("python", pythonFunction()...), job: "call Python", n: 200, storm: "call Python", storms: 100_000,
			column: "count", args: byPID("-L"),
		},
		"uflow": {
			place: languageRuntime("python", "python:function__entry"), job: "enter Python", n: 200, storm: "enter Python", storms: 100_000,
			args: byPID("-l", "python"),
		},
		"ugc": {
			place: languageRuntime("python", pythonCollection()...), job: "collect Python", n: 200, storm: "collect Python", storms: 100_000,
			args: byPID(),
		},
		"uobjnew": {
			place: languageRuntime("ruby", "ruby:object__create"), job: "create Ruby", n: 200, storm: "create Ruby", storms: 100_000,
			column: "count", args: byPID("-l", "ruby"),
		},
		"ustat": {
			place: languageRuntime("ruby", "ruby:object__create"), job: "create Ruby", n: 200, storm: "create Ruby", storms: 100_000,
			column: "objects", args: byPID("-l", "ruby"),
		},
		"uthreads": {
			place: languageRuntime("java", "hotspot:thread__start"), job: "start Java", n: 200, storm: "start Java", storms: 100_000,
			args: byPID("-l", "java"),
		},
	}
}
