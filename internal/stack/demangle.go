package stack

import (
	"strings"

	itanium "github.com/ianlancetaylor/demangle"
)

// demangle returns the name as the source writes it, for C++ and Rust; a name
// that is not mangled, or is longer than is safe, comes back unchanged. The
// version behind the name of an ELF symbol (memcpy@@GLIBC_2.14) is cut off.
func demangle(name string) string {
	// The demangler recurses with the name; its results may grow far beyond
	// it, and are cut without a sign when they reach the limit.
	const longest, limit = 32 << 10, 14
	if !strings.HasPrefix(name, "_") || len(name) > longest {
		return name
	}
	plain, err := itanium.ToString(name, itanium.MaxLength(limit))
	if err != nil || len(plain) >= 1<<limit {
		return name
	}
	return plain
}

// unversioned cuts the version off the name of an ELF symbol.
func unversioned(name string) string {
	if i := strings.IndexByte(name, '@'); i > 0 {
		return name[:i]
	}
	return name
}
