package stack

import (
	"strings"

	itanium "github.com/ianlancetaylor/demangle"
)

// demangle returns the name as the source writes it, for C++ and Rust; a name
// that is not mangled comes back unchanged, and so does one that grows beyond
// what anybody reads: the demangler cuts it off without a sign.
func demangle(name string) string {
	const limit = 14 // 16 KiB
	if !strings.HasPrefix(name, "_") {
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
