package value

import "bytes"

// AppendPath appends the path with the given components: NUL-terminated names, ordered
// from the last component up to the root, as path.bpf.h collects them. The path starts
// with "..." if the list is truncated.
func AppendPath(b, names []byte, truncated bool) []byte {
	if truncated {
		b = append(b, "..."...)
	}
	if len(names) == 0 && !truncated {
		return append(b, '/')
	}
	for end := len(names); end > 0; {
		start := bytes.LastIndexByte(names[:end-1], 0) + 1
		b = append(append(b, '/'), names[start:end-1]...)
		end = start
	}
	return b
}
