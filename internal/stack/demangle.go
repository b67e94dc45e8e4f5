package stack

import (
	"strings"

	itanium "github.com/ianlancetaylor/demangle"
)

// demangle returns the name as the source writes it, for C++ and Rust; a name
// that is not mangled comes back unchanged. So does one made to do harm: the
// time the demangler takes grows with the square of the length (65,000
// characters: 10 s), and what grows beyond its limit it cuts without a sign.
func demangle(name string) string {
	const longest, limit = 4096, 14 // 16 KiB
	if !strings.HasPrefix(name, "_") || len(name) > longest {
		return name
	}
	plain, err := itanium.ToString(name, itanium.MaxLength(limit))
	if err != nil || len(plain) >= 1<<limit {
		return name
	}
	return plain
}

// unversioned cuts the version off the name of an ELF symbol
// (memcpy@@GLIBC_2.14).
func unversioned(name string) string {
	if i := strings.IndexByte(name, '@'); i > 0 {
		return name[:i]
	}
	return name
}
