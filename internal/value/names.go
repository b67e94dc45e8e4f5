package value

import "bytes"

// AppendPath appends the path whose names the kernel has walked from the leaf up,
// each with a NUL (path.bpf.h). cut puts "..." where the walk was cut short.
func AppendPath(b, names []byte, cut bool) []byte {
	if cut {
		b = append(b, "..."...)
	}
	if len(names) == 0 && !cut {
		return append(b, '/')
	}
	for end := len(names); end > 0; {
		start := bytes.LastIndexByte(names[:end-1], 0) + 1
		b = append(append(b, '/'), names[start:end-1]...)
		end = start
	}
	return b
}
