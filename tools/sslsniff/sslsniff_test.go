package sslsniff

import (
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

func self(more ...string) []string { return append(more, "--pid", fmt.Sprint(os.Getpid())) }

// libraries are generated, with the functions of the real ones.
type libraries map[string]*native.Library

func open(t testing.TB) libraries {
	t.Helper()
	return libraries{
		"openssl": native.Open(t, "libssl.so.3", []string{"SSL_write", "SSL_read", "SSL_write_ex", "SSL_write_ex2", "SSL_read_ex", "SSL_do_handshake"}),
		"gnutls":  native.Open(t, "libgnutls.so.30", []string{"gnutls_record_send", "gnutls_record_send2", "gnutls_record_recv", "gnutls_record_recv_seq", "gnutls_handshake"}),
		"nss":     native.Open(t, "libnspr4.so", []string{"PR_Write", "PR_Send", "PR_Read", "PR_Recv"}),
	}
}

// call is a call with its expected row.
type call struct {
	library, function, direction string
	data                         string // in the buffer of the caller
	ret                          int64
	done                         uint64 // bytes reported by the _ex variants
	sleep                        time.Duration
	inner                        string // nested call

	len int // bytes transferred; no row if 0
}

func (c *call) do(libs libraries) {
	buf, done := native.Text(c.data), &c.done
	n := native.Call{Args: [7]uint64{0xabc000, native.Pointer(buf), uint64(len(c.data))}, Ret: uint64(c.ret), Sleep: c.sleep, Inner: c.inner}
	switch c.function {
	case "SSL_write_ex", "SSL_read_ex":
		n.Args[3] = native.Pointer(done)
	case "SSL_write_ex2":
		n.Args[4] = native.Pointer(done)
	}
	if c.inner == "SSL_write_ex2" {
		n.Args[4] = native.Pointer(done)
	}
	libs[c.library].Call(c.function, n)
}

const minusOne = 0xffffffff // -1 as an int in a register

func calls() []call {
	big := strings.Repeat("0123456789abcdef", 4096)
	return []call{
		{library: "openssl", function: "SSL_write", direction: "write", data: "GET / HTTP/1.1\r\n", ret: 16, len: 16},
		{library: "openssl", function: "SSL_read", direction: "read", data: "\x00\xff\x1b[31m", ret: 7, len: 7, sleep: 5 * time.Millisecond},
		{library: "openssl", function: "SSL_read", direction: "read", data: "rest of the buffer", ret: 4, len: 4},
		{library: "openssl", function: "SSL_read", direction: "read", data: "nothing", ret: minusOne},
		{library: "openssl", function: "SSL_write", direction: "write", data: "closed", ret: 0},
		{library: "openssl", function: "SSL_write_ex", direction: "write", data: big, ret: 1, done: 65536, len: 65536},
		{library: "openssl", function: "SSL_write_ex", direction: "write", data: "failed", ret: 0, done: 99},
		{library: "openssl", function: "SSL_write_ex2", direction: "write", data: "early", ret: 1, done: 5, len: 5},
		{library: "openssl", function: "SSL_read_ex", direction: "read", data: big, ret: 1, done: 8193, len: 8193},
		{library: "openssl", function: "SSL_read_ex", direction: "read", data: "three", ret: 1, done: 3, len: 3},
		{library: "gnutls", function: "gnutls_record_send", direction: "write", data: "send", ret: 4, len: 4},
		{library: "gnutls", function: "gnutls_record_send", direction: "write", data: "one of two", ret: 10, len: 10, inner: "gnutls_record_send2"},
		{library: "openssl", function: "SSL_write_ex", direction: "write", data: "two", ret: 1, done: 3, len: 3, inner: "SSL_write_ex2"},
		{library: "gnutls", function: "gnutls_record_send2", direction: "write", data: "send2", ret: 5, len: 5},
		{library: "gnutls", function: "gnutls_record_recv", direction: "read", data: "recv", ret: 4, len: 4},
		{library: "gnutls", function: "gnutls_record_recv_seq", direction: "read", data: "seq", ret: 3, len: 3},
		{library: "gnutls", function: "gnutls_record_recv", direction: "read", data: "again", ret: -28},
		{library: "nss", function: "PR_Write", direction: "write", data: "Write", ret: 5, len: 5},
		{library: "nss", function: "PR_Send", direction: "write", data: "Send", ret: 4, len: 4},
		{library: "nss", function: "PR_Read", direction: "read", data: "Read", ret: 4, len: 4},
		{library: "nss", function: "PR_Recv", direction: "read", data: "Recv", ret: minusOne},
	}
}

func moved(all []call, library string) []call {
	return slices.DeleteFunc(all, func(c call) bool { return c.len == 0 || library != "" && c.library != library })
}

func run(t *testing.T, args ...string) *tooltest.Result {
	t.Helper()
	libs := open(t)
	return tooltest.JSON(t, Tool, self(args...), func() {
		for _, c := range calls() {
			c.do(libs)
		}
	})
}

// checkRows compares rows with calls whose data is limited to this number of bytes.
func checkRows(t *testing.T, rows []tooltest.Row, want []call, most int) {
	t.Helper()
	if len(rows) != len(want) {
		t.Fatalf("%d rows of %d calls", len(rows), len(want))
	}
	for i, c := range want {
		r, text := rows[i], c.data[:min(c.len, most)]
		if r.Str("library") != c.library || r.Str("call") != c.direction || r.Num("len") != float64(c.len) || r["truncated"] != (c.len > most) {
			t.Errorf("row %v, want %s with %d bytes", r, c.function, c.len)
		}
		if got := r.Bytes(t, "data"); got != text {
			t.Errorf("%s: %d bytes of data, want %d: %.40q, want %.40q", c.function, len(got), len(text), got, text)
		}
		if r.Num("delta_ns") < float64(c.sleep) {
			t.Errorf("%s took %v ns, the function slept %v", c.function, r.Num("delta_ns"), c.sleep)
		}
	}
}

func TestCalls(t *testing.T) {
	checkRows(t, run(t).Events, moved(calls(), ""), 8192)
}

func TestSizes(t *testing.T) {
	for _, size := range []int{0, 1, 16384} {
		checkRows(t, run(t, fmt.Sprint("--max-buffer-size=", size)).Events, moved(calls(), ""), size)
	}
	var errOut strings.Builder
	if code := tool.Run(t.Context(), Tool, []string{"--max-buffer-size", "16385"}, &errOut, &errOut); code != tool.ExitUsage {
		t.Errorf("size above the limit: exit code %d, %s", code, errOut.String())
	}
}

func TestLibraries(t *testing.T) {
	for library, args := range map[string][]string{"openssl": {"-g", "-n"}, "gnutls": {"-o", "--no-nss"}, "nss": {"--no-openssl", "-g"}} {
		checkRows(t, run(t, args...).Events, moved(calls(), library), 8192)
	}
}

func TestHexDump(t *testing.T) {
	res := run(t, "--hexdump", "-g", "-n", "--limit", "2")
	if want := hex.EncodeToString([]byte(calls()[1].data)); res.Events[1].Str("data") != want {
		t.Errorf("data %q, want %q", res.Events[1].Str("data"), want)
	}
}

func TestHandshake(t *testing.T) {
	libs := open(t)
	shake := func() {
		libs["openssl"].Call("SSL_do_handshake", native.Call{Args: [7]uint64{1}, Ret: minusOne})
		libs["openssl"].Call("SSL_do_handshake", native.Call{Args: [7]uint64{1}, Ret: 1, Sleep: 5 * time.Millisecond})
		libs["gnutls"].Call("gnutls_handshake", native.Call{Args: [7]uint64{2}})
	}
	res := tooltest.JSON(t, Tool, self("--handshake", "-l", "--columns", "+ret,channel"), shake)
	if len(res.Events) != 3 {
		t.Fatalf("rows %v", res.Events)
	}
	for i, want := range []struct{ ret, channel, least float64 }{{-1, 1, 0}, {1, 1, 5e6}, {0, 2, 0}} {
		r := res.Events[i]
		if r.Str("call") != "handshake" || r.Num("ret") != want.ret || r.Num("channel") != want.channel || r.Num("delta_ns") < want.least || r.Has("data") {
			t.Errorf("row %v, want %v", r, want)
		}
	}
	if res := tooltest.JSON(t, Tool, self(), shake); len(res.Events) != 0 {
		t.Errorf("handshakes without --handshake: %v", res.Events)
	}
}

// TestExtraLib uses a library with an unusual name.
func TestExtraLib(t *testing.T) {
	lib := native.Open(t, "vendored.so", []string{"SSL_write"})
	native.Open(t, "libssl.so.9", []string{"SSL_read"})
	text := native.Text("hidden")
	write := func() {
		lib.Call("SSL_write", native.Call{Args: [7]uint64{1, native.Pointer(text), 6}, Ret: 6})
	}
	for _, tt := range []struct {
		args []string
		rows int
	}{{nil, 0}, {[]string{"--extra-lib", "openssl:" + lib.Path}, 1}, {[]string{"--extra-lib", "openssl:" + lib.Path, "--extra-lib", "openssl:" + lib.Path}, 1}} {
		if res := tooltest.JSON(t, Tool, self(tt.args...), write); len(res.Events) != tt.rows {
			t.Errorf("%q: rows %v", tt.args, res.Events)
		}
	}
	for _, word := range []string{"openssl", "other:/x", "openssl:/no/such/file", "gnutls:" + lib.Path} {
		var errOut strings.Builder
		if code := tool.Run(t.Context(), Tool, []string{"--extra-lib", word}, &errOut, &errOut); code != tool.ExitUsage {
			t.Errorf("--extra-lib %s: exit code %d, %s", word, code, errOut.String())
		}
	}
}

func TestText(t *testing.T) {
	libs := open(t)
	out := tooltest.Text(t, Tool, self("-l", "-x"), func() {
		c := calls()[1]
		c.do(libs)
	})
	head, row, _ := strings.Cut(out, "\n")
	if strings.Join(strings.Fields(head), " ") != "FUNC TIME(s) COMM PID LEN UID TID LAT(ms) DATA" ||
		!strings.HasPrefix(row, "READ/RECV    ") || !strings.HasSuffix(row, ` \x00\xff\x1b[31m`+"\n") {
		t.Errorf("text is %q", out)
	}
}
