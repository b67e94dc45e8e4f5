// Package target finds the places in code that a user names: kernel functions, functions
// of programs and libraries, tracepoints. It understands the spellings of BCC, bpftrace
// and ksnoop.
//
//	vfs_read  p:vfs_read  p::vfs_read  k:vfs_read  kprobe:vfs_read   a kernel function
//	r:vfs_read  r::vfs_read  kretprobe:vfs_read                       its return
//	c:malloc  p:c:malloc  uprobe:c:malloc  /usr/bin/bash:readline     a user function
//	r:c:malloc  uretprobe:c:malloc                                    its return
//	t:sched:sched_switch  tracepoint:sched:sched_switch               a tracepoint
//	u:c:setjmp  usdt:/path:provider:probe                             a USDT probe
//
// Names are globs, of * for any text and ? for any character, or regular expressions.
package target

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// ErrSpec is returned for a text that names no place.
var ErrSpec = errors.New("not a probe")

// Kind is a kind of place.
type Kind uint8

const (
	Kernel Kind = iota
	User
	Tracepoint
	USDT
)

// String is the kind's name, which is also that of the hook of its programs.
func (k Kind) String() string {
	return [...]string{"kernel", "user", "tracepoint", "usdt"}[k]
}

// Spec is what a user named.
type Spec struct {
	Kind Kind
	// Return is the return of functions.
	Return bool
	// File is the program or library of a user function or USDT probe: a path, or a name
	// as the linker's -l takes it.
	File string
	// Name is a pattern of functions, of "category:event", or of "provider:probe".
	Name string
	// Offset is that of an instruction behind the begin of the function.
	Offset uint64
	// Regexp says that Name is a regular expression.
	Regexp bool
}

// prefix is what a word in front of a probe means.
type prefix struct {
	kind  Kind
	isRet bool
	// either tells that it is of kernel functions, or of user functions when a file
	// follows.
	either bool
}

func prefixes() map[string]prefix {
	return map[string]prefix{
		"p": {either: true}, "r": {either: true, isRet: true},
		"k": {}, "kprobe": {}, "kr": {isRet: true}, "kretprobe": {isRet: true},
		"fentry": {}, "kfunc": {}, "fexit": {isRet: true}, "kretfunc": {isRet: true},
		"uprobe": {kind: User}, "uretprobe": {kind: User, isRet: true}, "ur": {kind: User, isRet: true},
		"t": {kind: Tracepoint}, "tracepoint": {kind: Tracepoint},
		"u": {kind: USDT}, "usdt": {kind: USDT},
	}
}

// Parse reads a probe. With isRegexp its name is a regular expression.
//
// Returns ErrSpec.
func Parse(text string, isRegexp bool) (Spec, error) {
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
	p, known := prefixes()[word]
	switch {
	case !ok:
		return functionOf("", text, false)
	case !known:
		return functionOf(word, rest, false)
	case p.kind == Tracepoint:
		return tracepointOf(rest)
	case p.kind == USDT:
		return usdtOf(rest)
	case !p.either && p.kind == Kernel:
		return functionOf("", strings.TrimPrefix(rest, ":"), p.isRet)
	}
	file, name, ok := strings.Cut(rest, ":")
	if !ok && p.kind == User {
		return Spec{}, errors.New("it names no file, as in uprobe:c:malloc")
	}
	if !ok {
		file, name = "", rest
	}
	return functionOf(file, name, p.isRet)
}

func functionOf(file, name string, isRet bool) (Spec, error) {
	s := Spec{File: file, Name: name, Return: isRet}
	if file != "" {
		s.Kind = User
	}
	if name == "" {
		return s, errors.New("it names no function")
	}
	return s, nil
}

func tracepointOf(rest string) (Spec, error) {
	rest = strings.TrimPrefix(rest, ":")
	category, event, ok := strings.Cut(rest, ":")
	if !ok || category == "" || event == "" {
		return Spec{}, errors.New("a tracepoint is t:CATEGORY:EVENT")
	}
	return Spec{Kind: Tracepoint, Name: rest}, nil
}

func usdtOf(rest string) (Spec, error) {
	file, name, ok := strings.Cut(rest, ":")
	if !ok || file == "" || name == "" {
		return Spec{}, errors.New("a USDT probe is u:FILE:PROBE or u:FILE:PROVIDER:PROBE")
	}
	return Spec{Kind: USDT, File: file, Name: name}, nil
}

// cutOffset takes "+0x10" from the end of a function's name.
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
		return errors.New("a return has no offset")
	}
	s.Name, s.Offset = s.Name[:i], offset
	return nil
}

// IsPattern tells that the spec may stand for several places.
func (s *Spec) IsPattern() bool {
	return s.Regexp || strings.ContainsAny(s.Name, "*?")
}

// matcher is the pattern as a regular expression. One of the user's own must match from
// the begin of a name on, a glob all of it.
func (s *Spec) matcher() (*regexp.Regexp, error) {
	if s.Regexp {
		return regexp.Compile(`^(?:` + s.Name + `)`)
	}
	pattern := regexp.QuoteMeta(s.Name)
	pattern = strings.ReplaceAll(pattern, `\*`, `.*`)
	pattern = strings.ReplaceAll(pattern, `\?`, `.`)
	return regexp.Compile(`^` + pattern + `$`)
}
