package ksnoop

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/fetch"
)

// function is a function of the command line, with its probes.
type function struct {
	name string
	// entry and ret are the probes at its entry and return, or nil.
	entry, ret                            *fetch.Probe
	hasEntryCondition, hasReturnCondition bool
}

var (
	errFunction = errors.New("want FUNCTION or FUNCTION(VALUE, ...)")
	// A predicate of ksnoop compares with a number.
	predicate = regexp.MustCompile(`^(.*[^-=!<>])\s*(==|!=|>=|<=|>|<)\s*-?\w+$`)
	word      = regexp.MustCompile(`\b(return|retval)\b`)
)

// parse parses NAME or NAME(VALUE [PREDICATE], ...). The values without "return" belong to the entry.
// Without values, these are all arguments and the return value. proto returns the type of a function.
func parse(text string, proto func(name string) (*btf.FuncProto, error)) (*function, error) {
	text = strings.TrimSpace(text)
	name, list, isCustom := strings.Cut(text, "(")
	f := &function{name: strings.TrimSpace(name)}
	if f.name == "" || strings.ContainsAny(f.name, " :*?") || isCustom && !strings.HasSuffix(list, ")") {
		return nil, fmt.Errorf("%q: %w", text, errFunction)
	}
	var entry, ret, entryIf, retIf []string
	if !isCustom {
		p, err := proto(f.name)
		if err != nil {
			return nil, err
		}
		entry, ret = all(p)
	} else {
		for _, value := range fetch.Split(strings.TrimSuffix(list, ")")) {
			value = strings.TrimSpace(value)
			condition := ""
			if m := predicate.FindStringSubmatch(value); m != nil {
				value, condition = strings.TrimSpace(m[1]), value
			}
			values, conditions := &entry, &entryIf
			if word.MatchString(value) {
				values, conditions = &ret, &retIf
			}
			if !slices.Contains(*values, value) {
				*values = append(*values, value)
			}
			if condition != "" {
				*conditions = append(*conditions, condition)
			}
		}
	}
	f.hasEntryCondition, f.hasReturnCondition = len(entryIf) > 0, len(retIf) > 0
	var err error
	if len(entry) > 0 || !isCustom {
		if f.entry, err = probe(f.name, entry, entryIf); err != nil {
			return nil, err
		}
	}
	if len(ret) > 0 || !isCustom {
		f.ret, err = probe("r:"+f.name, ret, retIf)
	}
	return f, err
}

func probe(name string, values, conditions []string) (*fetch.Probe, error) {
	text := name + "(" + strings.Join(values, ", ") + ")"
	if len(conditions) > 0 {
		text += " if (" + strings.Join(conditions, ") && (") + ")"
	}
	return fetch.Parse(text)
}

// all returns the arguments of a function that are in registers, and its return value.
func all(p *btf.FuncProto) (entry, ret []string) {
	const registers = 6
	for i, param := range p.Params {
		if size, err := btf.Sizeof(param.Type); err != nil || size > 8 || i == registers || param.Name == "" {
			break
		}
		entry = append(entry, param.Name)
	}
	if size, err := btf.Sizeof(p.Return); err == nil && size > 0 && size <= 8 {
		ret = []string{"return"}
	}
	return entry, ret
}
