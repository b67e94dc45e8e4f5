package value

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenFlags are the flags of open(2) in the ABI of this architecture.
type OpenFlags uint64

type namedFlag struct {
	bits uint64
	name string
}

// openFlags lists flags that include the bits of others before those. The names are those
// of open(2); bits without a name are rendered as an octal number.
var openFlags = []namedFlag{
	{unix.O_TMPFILE, "O_TMPFILE"},
	{unix.O_SYNC, "O_SYNC"},
	{unix.O_CREAT, "O_CREAT"},
	{unix.O_EXCL, "O_EXCL"},
	{unix.O_NOCTTY, "O_NOCTTY"},
	{unix.O_TRUNC, "O_TRUNC"},
	{unix.O_APPEND, "O_APPEND"},
	{unix.O_NONBLOCK, "O_NONBLOCK"},
	{unix.O_DSYNC, "O_DSYNC"},
	{unix.O_ASYNC, "O_ASYNC"},
	{unix.O_DIRECT, "O_DIRECT"},
	{kernelLargefile, "O_LARGEFILE"},
	{unix.O_DIRECTORY, "O_DIRECTORY"},
	{unix.O_NOFOLLOW, "O_NOFOLLOW"},
	{unix.O_NOATIME, "O_NOATIME"},
	{unix.O_CLOEXEC, "O_CLOEXEC"},
	{unix.O_PATH, "O_PATH"},
}

var accessModes = [4]string{"O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"}

// names iterates over the access mode and the flags.
func (v *OpenFlags) names(yield func(string) bool) {
	rest := uint64(*v)
	if !yield(accessModes[rest&unix.O_ACCMODE]) {
		return
	}
	rest &^= unix.O_ACCMODE
	for _, f := range openFlags {
		if rest&f.bits != f.bits {
			continue
		}
		rest &^= f.bits
		if !yield(f.name) {
			return
		}
	}
	if rest != 0 {
		yield("0" + strconv.FormatUint(rest, 8))
	}
}

func (v *OpenFlags) AppendText(b []byte) []byte {
	for name := range v.names {
		b = append(append(b, name...), '|')
	}
	return bytes.TrimSuffix(b, []byte("|"))
}

func (v *OpenFlags) AppendJSON(b []byte) []byte {
	b = append(b, '[')
	for name := range v.names {
		b = append(AppendString(b, name), ',')
	}
	b[len(b)-1] = ']'
	return b
}

func (v *OpenFlags) Any() any {
	var all []string
	for name := range v.names {
		all = append(all, name)
	}
	return all
}

func (v *OpenFlags) Schema() Schema { return Schema{Type: "array", Items: &Schema{Type: "string"}} }

// HasMode reports whether open(2) uses its mode argument with these flags.
func (v OpenFlags) HasMode() bool {
	return v&unix.O_CREAT != 0 || v&unix.O_TMPFILE == unix.O_TMPFILE
}

// ParseOpenFlag returns the bits of a flag and whether it is an access mode. The prefix
// "O_" is optional; case is ignored.
func ParseOpenFlag(name string) (bits uint64, access bool, err error) {
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "O_") {
		name = "O_" + name
	}
	for bits, mode := range accessModes {
		if mode == name {
			return uint64(bits), true, nil
		}
	}
	for _, f := range openFlags {
		if f.name == name {
			return f.bits, false, nil
		}
	}
	return 0, false, fmt.Errorf("%q is not a flag of open(2), such as O_CREAT", name)
}

// FileMode is the permission bits of a file, rendered in octal. It is absent if the call
// has none.
type FileMode struct {
	Bits  uint32
	Given bool
}

func (v *FileMode) Absent() bool { return !v.Given }

func (v *FileMode) AppendText(b []byte) []byte {
	if v.Bits < 01000 {
		b = append(b, '0')
	}
	if v.Bits < 0100 {
		b = append(b, '0')
	}
	if v.Bits < 010 {
		b = append(b, '0')
	}
	return strconv.AppendUint(b, uint64(v.Bits), 8)
}

func (v *FileMode) AppendJSON(b []byte) []byte { return append(v.AppendText(append(b, '"')), '"') }
func (v *FileMode) Any() any                   { return string(v.AppendText(nil)) }
func (v *FileMode) Schema() Schema             { return Schema{Type: "string"} }
