package stack

import (
	"bytes"
	"strconv"
	"strings"
)

// mapping is one executable line of /proc/PID/maps.
type mapping struct {
	start, end uint64
	offset     uint64 // of start within the file
	inode      uint64 // 0 if it is no file
	path       string
	module     *module // nil if it is no file, or could not be opened
	reason     Reason  // why module is nil, Named if it is no file
}

// isSame tells that both are of the same part of a file at the same place.
func (m *mapping) isSame(o *mapping) bool {
	return m.start == o.start && m.end == o.end && m.offset == o.offset && m.inode == o.inode && m.path == o.path
}

// parseMaps returns the executable mappings, ordered by address as the kernel
// writes them. Lines it cannot read are left out.
func parseMaps(data []byte) []mapping {
	var maps []mapping
	for line := range bytes.Lines(data) {
		if m, ok := parseMapping(bytes.TrimSuffix(line, []byte("\n"))); ok {
			maps = append(maps, m)
		}
	}
	return maps
}

// parseMapping reads "start-end perms offset major:minor inode   path".
func parseMapping(line []byte) (m mapping, ok bool) {
	var fields [5]string
	for i := range fields {
		field, rest, _ := bytes.Cut(line, []byte(" "))
		fields[i], line = string(field), rest
	}
	if len(fields[1]) < 3 || fields[1][2] != 'x' {
		return mapping{}, false
	}
	start, end, _ := strings.Cut(fields[0], "-")
	var errs [4]error
	m.start, errs[0] = strconv.ParseUint(start, 16, 64)
	m.end, errs[1] = strconv.ParseUint(end, 16, 64)
	m.offset, errs[2] = strconv.ParseUint(fields[2], 16, 64)
	m.inode, errs[3] = strconv.ParseUint(fields[4], 10, 64)
	m.path = string(bytes.TrimLeft(line, " "))
	if m.path == "" {
		m.path = "[anon]"
	}
	return m, errs == [4]error{} && m.start < m.end
}

// isFile reports whether the mapping is one of a file.
func (m *mapping) isFile() bool {
	return m.inode != 0
}

// file is the path to open; the kernel escapes newlines, and nothing else.
func (m *mapping) file() string {
	return strings.ReplaceAll(m.path, `\012`, "\n")
}
