package value

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// Error is a result whose failure is named. It is absent where the call went well.
type Error int32

// Absent reports that there was no error.
func (v *Error) Absent() bool { return *v >= 0 }

// kernelErrnos are the errors of include/linux/errno.h, which user space does not see
// but a probe does, and EOPNOTSUPP, which package unix has under its other name.
var kernelErrnos = map[int64]string{
	95:  "EOPNOTSUPP",
	512: "ERESTARTSYS", 513: "ERESTARTNOINTR", 514: "ERESTARTNOHAND", 515: "ENOIOCTLCMD",
	516: "ERESTART_RESTARTBLOCK", 517: "EPROBE_DEFER", 518: "EOPENSTALE", 519: "ENOPARAM",
	521: "EBADHANDLE", 522: "ENOTSYNC", 523: "EBADCOOKIE", 524: "ENOTSUPP", 525: "ETOOSMALL",
	526: "ESERVERFAULT", 527: "EBADTYPE", 528: "EJUKEBOX", 529: "EIOCBQUEUED",
	530: "ERECALLCONFLICT", 531: "ENOGRACE",
}

// appendName appends the error's name, or its number where it has none.
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
