package gethostlatency

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/value"
)

// function mirrors enum function.
type function uint8

const getaddrinfo = function(bpfFunctionGETADDRINFO)

func (f *function) name() string {
	names := [...]string{
		bpfFunctionGETADDRINFO: "getaddrinfo", bpfFunctionGETHOSTBYNAME: "gethostbyname", bpfFunctionGETHOSTBYNAME2: "gethostbyname2",
		bpfFunctionGETHOSTBYNAME_R: "gethostbyname_r", bpfFunctionGETHOSTBYNAME2R: "gethostbyname2_r",
	}
	if int(*f) < len(names) {
		return names[*f]
	}
	return strconv.Itoa(int(*f))
}

func (f *function) AppendText(b []byte) []byte { return append(b, f.name()...) }
func (f *function) AppendJSON(b []byte) []byte { return value.AppendString(b, f.name()) }
func (f *function) Any() any                   { return f.name() }
func (f *function) Schema() value.Schema       { return value.Schema{Type: "string"} }

// addr is an IPv6 or IPv4-mapped address.
type addr = [16]byte

type foundAddr struct {
	value.Addr
	none bool
}

// Absent reports whether no address was found.
func (a *foundAddr) Absent() bool { return a.none }

// Any returns the address, or "" if there is none.
func (a *foundAddr) Any() any {
	if a.none {
		return ""
	}
	return a.Addr.Any()
}

// reason returns the name of the error of a failed lookup.
func (r *row) reason() string {
	switch {
	case r.Found:
		return ""
	case r.Function == getaddrinfo:
		return named(eai(), r.Ret)
	case r.HErrno > 0:
		return named(hErrnos(), r.HErrno)
	case r.Ret != 0:
		return unix.ErrnoName(unix.Errno(r.Ret))
	}
	return "FAILED"
}

func named(names map[int32]string, code int32) string {
	if name := names[code]; name != "" {
		return name
	}
	return strconv.Itoa(int(code))
}

// eai returns the names of the errors of getaddrinfo in glibc and musl.
func eai() map[int32]string {
	return map[int32]string{
		-1: "EAI_BADFLAGS", -2: "EAI_NONAME", -3: "EAI_AGAIN", -4: "EAI_FAIL", -5: "EAI_NODATA",
		-6: "EAI_FAMILY", -7: "EAI_SOCKTYPE", -8: "EAI_SERVICE", -9: "EAI_ADDRFAMILY", -10: "EAI_MEMORY",
		-11: "EAI_SYSTEM", -12: "EAI_OVERFLOW", -100: "EAI_INPROGRESS", -101: "EAI_CANCELED",
		-102: "EAI_NOTCANCELED", -103: "EAI_ALLDONE", -104: "EAI_INTR", -105: "EAI_IDN_ENCODE",
	}
}

func hErrnos() map[int32]string {
	return map[int32]string{1: "HOST_NOT_FOUND", 2: "TRY_AGAIN", 3: "NO_RECOVERY", 4: "NO_DATA"}
}
