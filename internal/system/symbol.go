package system

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	f, err := os.Open(filepath.Join(root, "proc/kallsyms"))
	if err != nil {
		return 0, fmt.Errorf("open kernel symbols: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		address, rest, _ := strings.Cut(lines.Text(), " ")
		if len(rest) < 2 || rest[2:] != name { // after the type and a space
			continue
		}
		if n, err := strconv.ParseUint(address, 16, 64); err == nil && n != 0 {
			return n, nil
		}
		break
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read kernel symbols: %w", err)
	}
	return 0, fmt.Errorf("%s: %w", name, ErrNoSymbol)
}
