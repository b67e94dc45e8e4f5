package stack

import (
	"bytes"
	"io"
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/limit"
)

// mapping is an executable mapping, a line of /proc/PID/maps.
type mapping struct {
	start, end uint64
	offset     uint64 // file offset of start
	inode      uint64 // 0 if it is not a file
	path       string
	module     *module // nil if it is not a file or cannot be opened
	reason     Reason  // why module is nil; Named if it is not a file
	// seenFrom and seenTo are the start and the end of the time in which it was last seen
	// (CLOCK_MONOTONIC in ns).
	seenFrom, seenTo uint64
}

// isSame reports whether both map the same part of a file to the same address.
func (m *mapping) isSame(o *mapping) bool {
	return m.start == o.start && m.end == o.end && m.offset == o.offset && m.inode == o.inode && m.path == o.path
}

// parseMaps returns the executable mappings, sorted by address as in the file. It ignores malformed
// lines. isAny reports whether there are any lines. If there are too many mappings, it returns the
// first ones and a [limit.Error] that contains name as the name of the file.
func parseMaps(r io.Reader, name string) (maps []mapping, isAny bool, err error) {
	paths := limit.Paths{}
	var exceeded error
	err = limit.Lines(r, func(line []byte) bool {
		isAny = true
		m, path, ok := parseMapping(line)
		if !ok {
			return true
		}
		if m.path, ok = paths.Intern(path); !ok || len(maps) >= limit.Mappings {
			exceeded = paths.Exceeded(name)
			return false
		}
		maps = append(maps, m)
		return true
	})
	if err != nil {
		return nil, isAny, err
	}
	return maps, isAny, exceeded
}

// parseMapping parses "start-end perms offset major:minor inode   path".
func parseMapping(line []byte) (m mapping, path []byte, ok bool) {
	var fields [5]string
	for i := range fields {
		field, rest, _ := bytes.Cut(line, []byte(" "))
		fields[i], line = string(field), rest
	}
	if len(fields[1]) < 3 || fields[1][2] != 'x' {
		return mapping{}, nil, false
	}
	start, end, _ := strings.Cut(fields[0], "-")
	var errs [4]error
	m.start, errs[0] = strconv.ParseUint(start, 16, 64)
	m.end, errs[1] = strconv.ParseUint(end, 16, 64)
	m.offset, errs[2] = strconv.ParseUint(fields[2], 16, 64)
	m.inode, errs[3] = strconv.ParseUint(fields[4], 10, 64)
	if path = bytes.TrimLeft(line, " "); len(path) == 0 {
		path = []byte("[anon]")
	}
	return m, binary.UnescapePath(path), errs == [4]error{} && m.start < m.end
}

// bytes returns the memory of the mapping, including its path.
func (m *mapping) bytes() int {
	const fixed = 96
	return fixed + len(m.path)
}

// isFile reports whether a file is mapped.
func (m *mapping) isFile() bool {
	return m.inode != 0
}
