package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// score is how true the stacks of one run are, in per cent of its samples.
type score struct {
	Samples            int
	Full, Found, Named float64
	// Failed is of a peer that did not come to an end.
	Failed bool
}

// judge compares stacks with those that a program has.
type judge struct {
	chain  []*regexp.Regexp // nil for rest
	others []*regexp.Regexp
	heads  int
	// functionAt is what is at an address, "" if that is not known.
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

// score judges all stacks of a run.
func (j *judge) score(samples []sample) score {
	var s score
	var frames, named int
	var full, found float64
	for _, one := range samples {
		s.Samples += one.count
		full += float64(one.count) * boolean(j.isFull(one.frames))
		found += float64(one.count) * j.found(one.frames)
		for _, f := range one.frames {
			frames += one.count
			if f.name != "" && j.isKnown(plain(f.name)) {
				named += one.count
			}
		}
	}
	if s.Samples > 0 {
		s.Full, s.Found = 100*full/float64(s.Samples), 100*found/float64(s.Samples)
	}
	if frames > 0 {
		s.Named = 100 * float64(named) / float64(frames)
	}
	return s
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// plain is the name as the source writes it; some tools show it as it is in the file.
func plain(name string) string {
	return demangle.Filter(name)
}

// isKnown tells whether the program has the function.
func (j *judge) isKnown(name string) bool {
	is := func(r *regexp.Regexp) bool { return r != nil && r.MatchString(name) }
	return slices.ContainsFunc(j.chain, is) || slices.ContainsFunc(j.others, is)
}

// is tells whether the frame is that function, by its name or by where it is.
func (j *judge) is(f frame, want *regexp.Regexp) bool {
	if f.name != "" {
		return want.MatchString(plain(f.name))
	}
	at := j.functionAt(f.address)
	return at != "" && want.MatchString(plain(at))
}

// isFull tells whether the stack begins with the chain.
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
	case len(frames) == 0 || !j.is(frames[0], chain[0]):
		return false
	}
	return j.follows(frames[1:], chain[1:])
}

// found is the share of the chain that the stack has in its order, from 0 to 1.
func (j *judge) found(frames []frame) float64 {
	var best float64
	for head := range j.heads {
		chain := slices.DeleteFunc(slices.Clone(j.chain[head:]), func(r *regexp.Regexp) bool { return r == nil })
		best = max(best, float64(j.common(frames, chain))/float64(len(chain)))
	}
	return best
}

// common is the length of the longest common subsequence.
func (j *judge) common(frames []frame, chain []*regexp.Regexp) int {
	before, now := make([]int, len(chain)+1), make([]int, len(chain)+1)
	for _, f := range frames {
		for i, want := range chain {
			now[i+1] = max(now[i], before[i+1])
			if j.is(f, want) {
				now[i+1] = max(now[i+1], before[i]+1)
			}
		}
		before, now = now, before
	}
	return before[len(chain)]
}

// words are the figures in a cell of the table.
func (s *score) words() string {
	switch {
	case s.Failed:
		return "failed"
	case s.Samples == 0:
		return "no samples"
	}
	return strings.Join([]string{percent(s.Full), percent(s.Found), percent(s.Named)}, " / ")
}
