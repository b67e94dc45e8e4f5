package gethostlatency

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// Structs of netdb.h. Members that the tests do not set have no name.
type addrinfo struct {
	_, family, socktype, _ int32  // flags, protocol
	_                      uint32 // addrlen
	addr                   *sockaddr
	_                      *byte // canonname
	next                   *addrinfo
}

type sockaddr struct {
	family uint16
	_      uint16  // port
	flow   [4]byte // IPv4 address
	ip     [16]byte
}

type hostent struct {
	_                *byte  // name
	_                **byte // aliases
	addrtype, length int32
	addrs            **[16]byte
}

func v4(a, b, c, d byte, next *addrinfo) *addrinfo {
	return &addrinfo{family: 2, socktype: 1, addr: &sockaddr{family: 2, flow: [4]byte{a, b, c, d}}, next: next}
}

func v6(last byte, next *addrinfo) *addrinfo {
	return &addrinfo{family: 10, addr: &sockaddr{family: 10, ip: [16]byte{0x20, 1, 0xd, 0xb8, 15: last}}, next: next}
}

func self() []string { return []string{"--pid", fmt.Sprint(os.Getpid())} }

// call is a lookup with its expected row.
type call struct {
	function, host, service string
	answer                  any // *addrinfo, *hostent or nil
	ret                     int32
	hErrno                  int32
	sleep                   time.Duration
	inner                   string // nested call

	addr, err string
	addrs     float64
}

var kept []any // keeps what calls point to alive

// libc is a generated library with known results.
func libc(t testing.TB) *native.Library {
	t.Helper()
	return native.Open(t, "libc.so.6", []string{"getaddrinfo", "gethostbyname", "gethostbyname2", "gethostbyname_r", "gethostbyname2_r"})
}

// do makes the calls, with the arguments that each function has.
func (c *call) do(lib *native.Library) {
	var result, answer uint64
	switch a := c.answer.(type) {
	case *addrinfo:
		answer = native.Pointer(a)
	case *hostent:
		answer = native.Pointer(a)
	}
	host, service, resultAt, hErrno := native.Text(c.host), native.Text(c.service), &answer, &c.hErrno
	kept = append(kept, host, service, resultAt, c.answer, c)
	result = native.Pointer(resultAt)
	n := native.Call{Ret: uint64(uint32(c.ret)), Sleep: c.sleep, Inner: c.inner}
	n.Args[0] = native.Pointer(host)
	switch c.function {
	case "getaddrinfo":
		n.Args[1], n.Args[3] = native.Pointer(service), result
	case "gethostbyname_r":
		n.Args[4], n.Args[5] = result, native.Pointer(hErrno)
	case "gethostbyname2_r":
		n.Args[5], n.Args[6] = result, native.Pointer(hErrno)
	default:
		n.Ret = answer
	}
	if c.inner == "gethostbyname_r" {
		n.Args[4], n.Args[5] = result, native.Pointer(hErrno)
	}
	lib.Call(c.function, n)
}

func calls() []call {
	four := &[16]byte{192, 0, 2, 7}
	entry := &hostent{addrtype: 2, length: 4, addrs: &[]*[16]byte{four, {198, 51, 100, 1}, nil}[0]}
	return []call{
		{function: "getaddrinfo", host: "one.test", service: "http", answer: v4(192, 0, 2, 1, nil), addr: "192.0.2.1", addrs: 1},
		{function: "getaddrinfo", host: "types.test", answer: v6(1, v6(1, v6(1, v4(192, 0, 2, 2, nil)))), addr: "2001:db8::1", addrs: 2},
		{function: "getaddrinfo", host: "slow.test", answer: v4(192, 0, 2, 3, nil), addr: "192.0.2.3", addrs: 1, sleep: 5 * time.Millisecond},
		{function: "getaddrinfo", host: "none.test", ret: -2, err: "EAI_NONAME"},
		{function: "getaddrinfo", host: "odd.test", ret: -77, err: "-77"},
		{function: "getaddrinfo", host: "bad\xff\x1b[31m.test", ret: -3, err: "EAI_AGAIN"},
		{function: "gethostbyname", host: "old.test", answer: entry, addr: "192.0.2.7", addrs: 2},
		{function: "gethostbyname", host: "gone.test", err: "FAILED"},
		{function: "gethostbyname", host: "why.test", hErrno: 3, err: "NO_RECOVERY", inner: "gethostbyname_r"},
		{function: "gethostbyname2", host: "old2.test", answer: entry, addr: "192.0.2.7", addrs: 2},
		{function: "gethostbyname_r", host: "r.test", answer: entry, addr: "192.0.2.7", addrs: 2},
		{function: "gethostbyname_r", host: "small.test", ret: 34, hErrno: -1, err: "ERANGE"},
		{function: "gethostbyname_r", host: "nor.test", hErrno: 1, err: "HOST_NOT_FOUND"},
		{function: "gethostbyname2_r", host: "2r.test", answer: entry, addr: "192.0.2.7", addrs: 2},
		{function: "gethostbyname2_r", host: "no2r.test", hErrno: 2, err: "TRY_AGAIN"},
	}
}

// TestAnswers calls each function of a generated libc in this process.
func TestAnswers(t *testing.T) {
	lib, all := libc(t), calls()
	var took []time.Duration
	res := tooltest.JSON(t, Tool, self(), func() {
		for i := range all {
			start := time.Now()
			all[i].do(lib)
			took = append(took, time.Since(start))
		}
	})
	if len(res.Events) != len(all) {
		t.Fatalf("%d rows of %d calls: %v", len(res.Events), len(all), res.Events)
	}
	for i, want := range all {
		checkRow(t, res.Events[i], &want, took[i])
	}
}

func checkRow(t *testing.T, r tooltest.Row, want *call, took time.Duration) {
	t.Helper()
	if r.Bytes(t, "host") != want.host || r.Str("function") != want.function || r.Str("addr") != want.addr ||
		r.Num("addrs") != want.addrs || r.Str("error") != want.err || r["found"] != (want.answer != nil) {
		t.Errorf("row %v, want %+v", r, want)
	}
	if want.service != "" && r.Str("service") != want.service {
		t.Errorf("service %q, want %v", r.Str("service"), want)
	}
	if d := time.Duration(r.Num("delta_ns")); d < want.sleep || d > took {
		t.Errorf("%s: duration is %v, the function slept %v and took %v", want.host, d, want.sleep, took)
	}
}

func TestFailed(t *testing.T) {
	lib := libc(t)
	res := tooltest.JSON(t, Tool, append(self(), "-x"), func() {
		for _, c := range calls() {
			c.do(lib)
		}
	})
	for _, r := range res.Events {
		if r.Str("error") == "" {
			t.Errorf("-x shows %v", r)
		}
	}
	if len(res.Events) != 8 {
		t.Errorf("-x shows %d calls of 8", len(res.Events))
	}
}

func TestOtherProcess(t *testing.T) {
	lib := libc(t)
	other := exec.Command("sleep", "1000")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { other.Process.Kill(); other.Wait() }()
	var out strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready := writer(func(b []byte) {
		if strings.Contains(string(b), ": ready: ") {
			calls()[0].do(lib)
			cancel()
		}
	})
	tool.Run(ctx, Tool, []string{"--pid", fmt.Sprint(other.Process.Pid), "--output", "csv"}, &out, ready)
	if strings.Count(out.String(), "\n") > 1 {
		t.Errorf("--pid of another process shows %s", out.String())
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// TestMusl uses the file name of musl's libc in Debian.
func TestMusl(t *testing.T) {
	lib := native.Open(t, "libc.so", []string{"getaddrinfo"})
	res := tooltest.JSON(t, Tool, self(), func() { calls()[0].do(lib) })
	if len(res.Events) != 1 || res.Events[0].Str("host") != "one.test" {
		t.Errorf("rows %v", res.Events)
	}
}

func TestText(t *testing.T) {
	lib := libc(t)
	args := append(self(), "--columns", "comm,host,addr,error", "--no-header")
	out := tooltest.Text(t, Tool, args, func() {
		for _, c := range calls()[4:6] {
			c.do(lib)
		}
	})
	lines := strings.Split(out, "\n")
	if len(lines) != 3 || strings.Join(strings.Fields(lines[0])[1:], " ") != "odd.test - -77" ||
		!strings.Contains(lines[1], `bad\xff\x1b[31m.test`) {
		t.Errorf("text is %q", out)
	}
}

func TestCSV(t *testing.T) {
	lib := libc(t)
	out := tooltest.Text(t, Tool, append(self(), "--output", "csv", "--columns", "function,host,addrs"), func() { calls()[0].do(lib) })
	if out != "function,host,addrs\ngetaddrinfo,one.test,1\n" {
		t.Errorf("CSV is %q", out)
	}
}

// getent resolves names through libc.
func getent(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("getent")
	if err != nil {
		t.Skipf("getent is not installed: %v", err)
	}
	return path
}

// TestLibc traces the real libc, whose functions call each other.
func TestLibc(t *testing.T) {
	path := getent(t)
	var pid [3]int
	res := tooltest.JSON(t, Tool, nil, func() {
		for i, args := range [][]string{{"ahosts", "127.0.0.9"}, {"ahosts", "no such name"}, {"hosts", "no such name"}} {
			cmd := exec.Command(path, args...)
			_ = cmd.Run()
			pid[i] = cmd.Process.Pid
		}
	})
	rows := func(i int) []tooltest.Row {
		return res.Where(func(r tooltest.Row) bool { return r.Num("pid") == float64(pid[i]) })
	}
	if r := rows(0); len(r) != 1 || r[0].Str("addr") != "127.0.0.9" || r[0].Str("host") != "127.0.0.9" {
		t.Errorf("rows of an address: %v", r)
	}
	if r := rows(1); len(r) != 1 || !strings.HasPrefix(r[0].Str("error"), "EAI_") {
		t.Errorf("rows of a nonexistent name: %v", r)
	}
	if r := rows(2); len(r) != 2 || r[0].Str("error") != "HOST_NOT_FOUND" || r[0].Str("function") != "gethostbyname2" {
		t.Errorf("rows by gethostbyname2: %v", r)
	}
}

// TestLibcPath selects a library by its path: others are not traced, and one without these
// functions is rejected.
func TestLibcPath(t *testing.T) {
	lib, other := libc(t), libc(t)
	res := tooltest.JSON(t, Tool, append(self(), "-l", lib.Path), func() {
		calls()[0].do(lib)
		calls()[1].do(other)
	})
	if len(res.Events) != 1 || res.Events[0].Str("host") != "one.test" {
		t.Errorf("rows %v", res.Events)
	}
	none := native.Write(t, filepath.Join(t.TempDir(), "none.so"), []string{"other"})
	for path, want := range map[string]string{none.Path: "usage: " + none.Path + " has no attach point: none of the functions getaddrinfo, ", "/no/such/file": "no such file"} {
		var errOut strings.Builder
		code := tool.Run(t.Context(), Tool, []string{"-l", path}, io.Discard, &errOut)
		if code != tool.ExitUsage || !strings.Contains(errOut.String(), want) {
			t.Errorf("-l %s: exit code %d, %s", path, code, errOut.String())
		}
	}
}

// TestContainers uses two libraries with the same name, and one whose file was deleted.
func TestContainers(t *testing.T) {
	libs := []*native.Library{libc(t), libc(t), libc(t)}
	if err := os.Remove(libs[2].Path); err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, nil, func() {
		for i, lib := range libs {
			calls()[i].do(lib)
		}
	})
	mine := res.Where(func(r tooltest.Row) bool { return r.Num("pid") == float64(os.Getpid()) })
	if len(mine) != len(libs) {
		t.Errorf("%d rows of %d libraries: %v", len(mine), len(libs), mine)
	}
}
