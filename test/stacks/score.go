package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// score is the accuracy of the stacks of one run, in percent.
type score struct {
	Samples            int
	Full, Found, Named float64
	// Own is Named without the unnamed frames of the C library, whose local functions have names
	// only if its debug symbols are installed (libc6-dbg).
	Own float64
	// Failed is set if the peer failed.
	Failed bool
}

// judge compares reported stacks with the known stack of a program.
type judge struct {
	chain  []*regexp.Regexp // nil for rest
	others []*regexp.Regexp
	heads  int
	// functionAt returns the function at an address, or "".
	functionAt func(uint64) string
}

func newJudge(p *program, functionAt func(uint64) string) *judge {
	j := &judge{heads: p.heads, functionAt: functionAt}
	for _, pattern := range p.chain {
		if pattern == rest {
			j.chain = append(j.chain, nil)
			continue
		}
		j.chain = append(j.chain, compile(pattern))
	}
	for _, pattern := range p.others {
		j.others = append(j.others, compile(pattern))
	}
	return j
}

func compile(pattern string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + pattern + `)$`) }

// score returns the score of all samples of a run.
func (j *judge) score(samples []sample) score {
	var s score
	var frames, named, libcUnnamed int
	var full, found float64
	for _, stack := range samples {
		s.Samples += stack.count
		full += float64(stack.count) * boolean(j.isFull(stack.frames))
		found += float64(stack.count) * j.found(stack.frames)
		for _, f := range stack.frames {
			frames += stack.count
			if f.name != "" && j.isKnown(plain(f.name)) {
				named += stack.count
			}
			if f.name == "" && isLibc(f.module) {
				libcUnnamed += stack.count
			}
		}
	}
	if s.Samples > 0 {
		s.Full, s.Found = 100*full/float64(s.Samples), 100*found/float64(s.Samples)
	}
	if frames > 0 {
		s.Named = 100 * float64(named) / float64(frames)
	}
	if frames > libcUnnamed {
		s.Own = 100 * float64(named) / float64(frames-libcUnnamed)
	}
	return s
}

func isLibc(module string) bool { return strings.HasPrefix(filepath.Base(module), "libc.so.") }

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// plain returns the demangled name. Some tools report mangled names.
func plain(name string) string {
	return demangle.Filter(name)
}

// isKnown reports whether the program has a function with the given name.
func (j *judge) isKnown(name string) bool {
	match := func(r *regexp.Regexp) bool { return r != nil && r.MatchString(name) }
	return slices.ContainsFunc(j.chain, match) || slices.ContainsFunc(j.others, match)
}

// matches reports whether the frame is in the function, according to its name or address.
func (j *judge) matches(f frame, want *regexp.Regexp) bool {
	if f.name != "" {
		return want.MatchString(plain(f.name))
	}
	at := j.functionAt(f.address)
	return at != "" && want.MatchString(plain(at))
}

// isFull reports whether the stack starts with the chain.
func (j *judge) isFull(frames []frame) bool {
	for head := range j.heads {
		if j.follows(frames, j.chain[head:]) {
			return true
		}
	}
	return false
}

func (j *judge) follows(frames []frame, chain []*regexp.Regexp) bool {
	switch {
	case len(chain) == 0:
		return true
	case chain[0] == nil:
		for skip := range len(frames) + 1 {
			if j.follows(frames[skip:], chain[1:]) {
				return true
			}
		}
		return false
	case len(frames) == 0 || !j.matches(frames[0], chain[0]):
		return false
	}
	return j.follows(frames[1:], chain[1:])
}

// found returns the share of the chain that the stack contains in order, from 0 to 1.
func (j *judge) found(frames []frame) float64 {
	var best float64
	for head := range j.heads {
		chain := slices.DeleteFunc(slices.Clone(j.chain[head:]), func(r *regexp.Regexp) bool { return r == nil })
		best = max(best, float64(j.common(frames, chain))/float64(len(chain)))
	}
	return best
}

// common returns the length of the longest common subsequence.
func (j *judge) common(frames []frame, chain []*regexp.Regexp) int {
	before, now := make([]int, len(chain)+1), make([]int, len(chain)+1)
	for _, f := range frames {
		for i, want := range chain {
			now[i+1] = max(now[i], before[i+1])
			if j.matches(f, want) {
				now[i+1] = max(now[i+1], before[i]+1)
			}
		}
		before, now = now, before
	}
	return before[len(chain)]
}

// String returns the figures for a cell of the table.
func (s *score) String() string {
	switch {
	case s.Failed:
		return "failed"
	case s.Samples == 0:
		return "no samples"
	}
	return strings.Join([]string{percent(s.Full), percent(s.Found), percent(s.Named)}, " / ")
}
