package stack

import (
	"strings"

	itanium "github.com/ianlancetaylor/demangle"
)

// demangle returns the source name of a C++ or Rust symbol. It returns other names unchanged, and
// also names that are too long, because files are untrusted: the demangler takes time quadratic in
// the length (10 s for 65,000 characters), and truncates its output at MaxLength without an error.
func demangle(name string) string {
	const longest, limit = 4096, 14 // limit is the binary logarithm: 16 KiB
	if !strings.HasPrefix(name, "_") || len(name) > longest {
		return name
	}
	plain, err := itanium.ToString(name, itanium.MaxLength(limit))
	if err != nil || len(plain) >= 1<<limit {
		return name
	}
	return plain
}

// unversioned removes the version from the name of an ELF symbol, as in memcpy@@GLIBC_2.14.
func unversioned(name string) string {
	if i := strings.IndexByte(name, '@'); i > 0 {
		return name[:i]
	}
	return name
}
