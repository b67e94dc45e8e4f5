package value

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Error is the result of a call, rendered as the name of the error. It is absent if the
// call succeeded.
type Error int32

// Absent reports whether the call succeeded.
func (v *Error) Absent() bool { return *v >= 0 }

// kernelErrnos are the errors of include/linux/errno.h, which are visible only inside the
// kernel, and EOPNOTSUPP, which package unix names ENOTSUP.
var kernelErrnos = map[int64]string{
	95:  "EOPNOTSUPP",
	512: "ERESTARTSYS", 513: "ERESTARTNOINTR", 514: "ERESTARTNOHAND", 515: "ENOIOCTLCMD",
	516: "ERESTART_RESTARTBLOCK", 517: "EPROBE_DEFER", 518: "EOPENSTALE", 519: "ENOPARAM",
	521: "EBADHANDLE", 522: "ENOTSYNC", 523: "EBADCOOKIE", 524: "ENOTSUPP", 525: "ETOOSMALL",
	526: "ESERVERFAULT", 527: "EBADTYPE", 528: "EJUKEBOX", 529: "EIOCBQUEUED",
	530: "ERECALLCONFLICT", 531: "ENOGRACE",
}

// appendName appends the name of the error, or its number if it has none.
func (v *Error) appendName(b []byte) []byte {
	errno := -int64(*v)
	name := kernelErrnos[errno]
	if name == "" {
		name = unix.ErrnoName(unix.Errno(errno))
	}
	if name == "" {
		return strconv.AppendInt(b, errno, 10)
	}
	return append(b, name...)
}

func (v *Error) AppendText(b []byte) []byte { return v.appendName(b) }
func (v *Error) AppendJSON(b []byte) []byte { return append(v.appendName(append(b, '"')), '"') }
func (v *Error) Schema() Schema             { return Schema{Type: "string"} }

func (v *Error) Any() any {
	if v.Absent() {
		return ""
	}
	return string(v.appendName(nil))
}

// maxErrno is MAX_ERRNO of include/linux/err.h.
const maxErrno = 4095

// ParseErrno returns the number of an error given by name or number: ENOENT or 2.
func ParseErrno(s string) (uint32, error) {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil && n > 0 && n <= maxErrno {
		return uint32(n), nil
	}
	for n := int32(1); n <= maxErrno; n++ {
		if e := Error(-n); strings.EqualFold(string(e.appendName(nil)), s) {
			return uint32(n), nil
		}
	}
	return 0, fmt.Errorf("unknown error name or number %q", s)
}
