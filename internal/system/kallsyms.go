package system

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// KernelFunctions returns the addresses of kernel functions, from /proc/kallsyms. Functions that the
// kernel does not have, or has several of, are omitted; so are all if the kernel hides addresses.
func KernelFunctions(names []string) (map[string]uint64, error) {
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("read kernel symbols: %w", err)
	}
	defer file.Close()
	wanted := map[string]int{} // times found
	for _, name := range names {
		wanted[name] = 0
	}
	found := map[string]uint64{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, address, ok := kernelFunction(lines.Bytes())
		n, isWanted := wanted[string(name)]
		if !ok || !isWanted {
			continue
		}
		wanted[string(name)], found[string(name)] = n+1, address
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read kernel symbols: %w", err)
	}
	for name, n := range wanted {
		if n > 1 || found[name] == 0 {
			delete(found, name)
		}
	}
	return found, nil
}

// kernelFunction parses "ffffffff81766530 t name", or with "\t[module]" after it.
func kernelFunction(line []byte) (name []byte, address uint64, ok bool) {
	if len(line) < 20 || line[16] != ' ' || line[17]|0x20 != 't' {
		return nil, 0, false
	}
	name, _, _ = bytes.Cut(line[19:], []byte("\t"))
	address, err := strconv.ParseUint(string(line[:16]), 16, 64)
	return name, address, err == nil
}
