// Package target finds the attach points that a user names: kernel functions, functions of programs
// and libraries, USDT probes and tracepoints. It accepts the syntax of BCC, bpftrace and ksnoop.
//
//	vfs_read  ::vfs_read  p:vfs_read  p::vfs_read  k:vfs_read  kprobe:vfs_read   a kernel function
//	r:vfs_read  r::vfs_read  kretprobe:vfs_read                       its return
//	c:malloc  :c:malloc  p:c:malloc  uprobe:c:malloc  /usr/bin/bash:readline     a user function
//	r:c:malloc  uretprobe:c:malloc                                    its return
//	t:sched:sched_switch  tracepoint:sched:sched_switch               a tracepoint
//	u:c:setjmp  usdt:/path:provider:probe                             a USDT probe
//
// Names are globs, in which * matches any text and ? any character, or regular expressions.
package target

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// ErrSpec is returned for text that is not a valid probe.
var ErrSpec = errors.New("not a probe")

// ErrMissing is returned for an empty text.
var ErrMissing = errors.New("missing probe")

// Kind is the kind of an attach point.
type Kind uint8

const (
	Kernel Kind = iota
	User
	Tracepoint
	USDT
)

// String returns the name of the kind, which is also the name of the hook of its programs.
func (k Kind) String() string {
	return [...]string{"kernel", "user", "tracepoint", "usdt"}[k]
}

// Spec is a parsed probe of the command line.
type Spec struct {
	Kind Kind
	// Return selects the returns of functions.
	Return bool
	// File is the program or library of a user function or USDT probe: a path, or a name as for
	// the linker's option -l.
	File string
	// Name is a pattern for functions, for "category:event" or for "provider:probe".
	Name string
	// Offset is the offset of an instruction from the start of the function, in bytes.
	Offset uint64
	// Regexp means that Name is a regular expression.
	Regexp bool
}

// prefix is the meaning of the first word of a probe.
type prefix struct {
	kind  Kind
	isRet bool
	// fileOptional means that the prefix is for user functions if a file follows, otherwise for
	// kernel functions.
	fileOptional bool
}

func prefixes() map[string]prefix {
	return map[string]prefix{
		"": {fileOptional: true}, "p": {fileOptional: true}, "r": {fileOptional: true, isRet: true},
		"k": {}, "kprobe": {}, "kr": {isRet: true}, "kretprobe": {isRet: true},
		"fentry": {}, "kfunc": {}, "fexit": {isRet: true}, "kretfunc": {isRet: true},
		"uprobe": {kind: User}, "uretprobe": {kind: User, isRet: true}, "ur": {kind: User, isRet: true},
		"t": {kind: Tracepoint}, "tracepoint": {kind: Tracepoint},
		"u": {kind: USDT}, "usdt": {kind: USDT},
	}
}

// Parse parses a probe. If isRegexp is true, its name is a regular expression.
//
// Returns ErrSpec or ErrMissing.
func Parse(text string, isRegexp bool) (Spec, error) {
	if text == "" {
		return Spec{}, ErrMissing
	}
	s, err := parse(text)
	if err != nil {
		return s, fmt.Errorf("%q is %w: %s", text, ErrSpec, err)
	}
	s.Regexp = isRegexp
	if !isRegexp {
		if err := s.cutOffset(); err != nil {
			return s, fmt.Errorf("%q is %w: %s", text, ErrSpec, err)
		}
	}
	if _, err := s.matcher(); err != nil {
		return s, fmt.Errorf("%q is %w: %w", text, ErrSpec, err)
	}
	return s, nil
}

func parse(text string) (Spec, error) {
	word, rest, ok := strings.Cut(text, ":")
	p, isPrefix := prefixes()[word]
	switch {
	case !ok:
		return parseFunction("", text, false)
	case !isPrefix:
		return parseFunction(word, rest, false)
	case p.kind == Tracepoint:
		return parseTracepoint(rest)
	case p.kind == USDT:
		return parseUSDT(rest)
	case !p.fileOptional && p.kind == Kernel:
		return parseFunction("", strings.TrimPrefix(rest, ":"), p.isRet)
	}
	file, name, ok := strings.Cut(rest, ":")
	if !ok && p.kind == User {
		return Spec{}, errors.New("the file is missing, as in uprobe:c:malloc")
	}
	if !ok {
		file, name = "", rest
	}
	return parseFunction(file, name, p.isRet)
}

func parseFunction(file, name string, isRet bool) (Spec, error) {
	s := Spec{File: file, Name: name, Return: isRet}
	if file != "" {
		s.Kind = User
	}
	if name == "" {
		return s, errors.New("the function is missing")
	}
	return s, nil
}

func parseTracepoint(rest string) (Spec, error) {
	rest = strings.TrimPrefix(rest, ":")
	category, event, ok := strings.Cut(rest, ":")
	if !ok || category == "" || event == "" {
		return Spec{}, errors.New("the form is t:CATEGORY:EVENT")
	}
	return Spec{Kind: Tracepoint, Name: rest}, nil
}

func parseUSDT(rest string) (Spec, error) {
	file, name, ok := strings.Cut(rest, ":")
	if !ok || file == "" || name == "" {
		return Spec{}, errors.New("the form is u:FILE:PROBE or u:FILE:PROVIDER:PROBE")
	}
	return Spec{Kind: USDT, File: file, Name: name}, nil
}

// cutOffset removes an offset such as "+0x10" from the end of a function's name and stores it.
func (s *Spec) cutOffset() error {
	i := strings.LastIndexByte(s.Name, '+')
	if s.Kind != Kernel && s.Kind != User || i < 0 {
		return nil
	}
	offset, err := strconv.ParseUint(s.Name[i+1:], 0, 64)
	if err != nil || i == 0 {
		return fmt.Errorf("the offset %q is not a number", s.Name[i:])
	}
	if s.Return {
		return errors.New("an offset is not possible for a return")
	}
	s.Name, s.Offset = s.Name[:i], offset
	return nil
}

// IsPattern reports whether the name is a pattern.
func (s *Spec) IsPattern() bool {
	return s.Regexp || strings.ContainsAny(s.Name, "*?")
}

// matcher returns the pattern as a regular expression. A regular expression of the user must match
// from the start of a name, a glob the whole name.
func (s *Spec) matcher() (*regexp.Regexp, error) {
	if s.Regexp {
		return regexp.Compile(`^(?:` + s.Name + `)`)
	}
	pattern := regexp.QuoteMeta(s.Name)
	pattern = strings.ReplaceAll(pattern, `\*`, `.*`)
	pattern = strings.ReplaceAll(pattern, `\?`, `.`)
	return regexp.Compile(`^` + pattern + `$`)
}

// Matcher returns a function that reports whether a glob matches a whole name.
func Matcher(glob string) (func(name string) bool, error) {
	s := Spec{Name: glob}
	r, err := s.matcher()
	if err != nil {
		return nil, err
	}
	return r.MatchString, nil
}
