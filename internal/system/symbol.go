package system

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNoSymbol means that /proc/kallsyms lacks the symbol, or hides its address.
var ErrNoSymbol = errors.New("no such symbol in /proc/kallsyms")

// KernelSymbol returns the address of a symbol of the kernel, not of a module. It requires
// CAP_SYSLOG if kernel.kptr_restrict is set.
//
// Returns ErrNoSymbol.
func KernelSymbol(root, name string) (uint64, error) {
	found, err := KernelSymbols(root, name)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s: %w", name, ErrNoSymbol)
	}
	return found[name], err
}

// KernelSymbols returns the addresses of those of the symbols that the kernel has and does not hide.
func KernelSymbols(root string, names ...string) (map[string]uint64, error) {
	f, err := os.Open(filepath.Join(root, "proc/kallsyms"))
	if err != nil {
		return nil, fmt.Errorf("open kernel symbols: %w", err)
	}
	defer f.Close()
	all := map[string]uint64{}
	lines := bufio.NewScanner(f)
	for len(all) < len(names) && lines.Scan() {
		address, rest, _ := strings.Cut(lines.Text(), " ")
		if len(rest) < 2 || !slices.Contains(names, rest[2:]) { // after the type and a space
			continue
		}
		if n, err := strconv.ParseUint(address, 16, 64); err == nil && n != 0 && all[rest[2:]] == 0 {
			all[rest[2:]] = n
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read kernel symbols: %w", err)
	}
	return all, nil
}

// Range is a range of addresses. End is excluded.
type Range struct{ Start, End uint64 }

// KernelCode returns the addresses of the functions of the kernel, not of modules, whose name is
// wanted, in ascending order. Names have no suffixes of the compiler, such as .isra.0. Functions that
// are adjacent are in one range. There are none if the addresses are hidden.
func KernelCode(root string, wanted func(name string) bool) ([]Range, error) {
	f, err := os.Open(filepath.Join(root, "proc/kallsyms"))
	if err != nil {
		return nil, fmt.Errorf("open kernel symbols: %w", err)
	}
	defer f.Close()
	var all []Range
	var last uint64 // address of the last function, if it is wanted
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text, rest, _ := strings.Cut(lines.Text(), " ")
		address, err := strconv.ParseUint(text, 16, 64)
		if err != nil || address == 0 || len(rest) < 2 {
			continue
		}
		if strings.Contains(rest, "\t") { // the first symbol of a module
			break
		}
		isWanted := wanted(sourceName(rest[2:]))
		if last != 0 && address != last {
			all[len(all)-1].End = address
		}
		switch {
		case isWanted && last == 0:
			all = append(all, Range{address, address})
			last = address
		case isWanted:
			last = address
		case address != last: // otherwise it is another name of the same function
			last = 0
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read kernel symbols: %w", err)
	}
	return all, nil
}

// sourceName returns the name of a function in the source, without what the compiler adds: .isra.0,
// and __pfx_ for the padding before it.
func sourceName(symbol string) string {
	name, _, _ := strings.Cut(symbol, ".")
	name = strings.TrimPrefix(name, "__pfx_")
	return strings.TrimPrefix(name, "__cfi_")
}

// HasKernelData reports whether /proc/kallsyms has the variables of the kernel, not only its functions
// (CONFIG_KALLSYMS_ALL).
func HasKernelData(root string) bool {
	_, err := KernelSymbol(root, "init_task")
	return err == nil
}
