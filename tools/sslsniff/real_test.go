package sslsniff

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tlstest"
	"github.com/corescope/corescope/internal/tooltest"
)

// joined joins the data and sums the lengths of the rows of processes with this name prefix.
func joined(t *testing.T, res *tooltest.Result, comm, direction string) (data string, total float64) {
	for _, r := range res.Events {
		if strings.HasPrefix(r.Str("comm"), comm) && r.Str("call") == direction {
			data += r.Bytes(t, "data")
			total += r.Num("len")
		}
	}
	return data, total
}

// TestOpenSSL sends a request with the client of OpenSSL.
func TestOpenSSL(t *testing.T) {
	body := strings.Repeat("all of this\n", 3000)
	addr := tlstest.Serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) })
	request := "GET /openssl HTTP/1.0\r\n\r\n"
	cmd := tlstest.Command(t, "openssl", "s_client", "-quiet", "-ign_eof", "-connect", addr)
	cmd.Stdin = strings.NewReader(request)
	var out bytes.Buffer
	cmd.Stdout = &out
	tlstest.Hold(t, "libssl.so*")
	res := tooltest.JSON(t, Tool, nil, func() {
		if err := cmd.Run(); err != nil {
			t.Log(err) // the server closes the connection
		}
	})
	if got, n := joined(t, res, "openssl", "write"); got != request || n != float64(len(request)) {
		t.Errorf("rows have %q, %v bytes, want %q", got, n, request)
	}
	got, n := joined(t, res, "openssl", "read")
	if got != out.String() || n != float64(out.Len()) || !strings.HasSuffix(got, body) {
		t.Errorf("rows have %d bytes of data and length %v; the client printed %d", len(got), n, out.Len())
	}
}

// TestPython writes more data at once than is shown.
func TestPython(t *testing.T) {
	received := make(chan int, 1)
	addr := tlstest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		received <- len(b)
	})
	host, port, _ := strings.Cut(addr, ":")
	cmd := tlstest.Command(t, "python3", "-c", fmt.Sprintf(`
import socket, ssl
context = ssl._create_unverified_context()
s = context.wrap_socket(socket.create_connection(("%s", %s)))
n = s.write(b"POST / HTTP/1.0\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100000)
s.read()
print(n)`, host, port))
	if out, err := exec.Command("python3", "-c", "import ssl").CombinedOutput(); err != nil {
		t.Skipf("python3 has no ssl module: %s", out)
	}
	var out []byte
	tlstest.Hold(t, "libssl.so*")
	res := tooltest.JSON(t, Tool, nil, func() {
		var err error
		if out, err = cmd.Output(); err != nil {
			t.Error(err)
		}
	})
	data, n := joined(t, res, "python3", "write")
	if want := strings.TrimSpace(string(out)); fmt.Sprintf("%.0f", n) != want {
		t.Errorf("%v bytes, python wrote %s", n, want)
	}
	if len(data) != 8192 || <-received != 100000 {
		t.Errorf("%d bytes of data are shown, want 8192", len(data))
	}
}

// TestNode traces Node.js, which has OpenSSL statically linked.
func TestNode(t *testing.T) {
	addr := tlstest.Serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "to node") })
	cmd := tlstest.Command(t, "node", "-e", fmt.Sprintf(`
process.stdin.once('data', () => require('https').get('https://%s/node',
	{ rejectUnauthorized: false, agent: false }, r => { r.resume(); r.on('end', () => process.exit()) }));
console.log('begun');`, addr))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if _, err := io.ReadFull(stdout, make([]byte, len("begun"))); err != nil {
		t.Fatal(err)
	}
	exe, err := elf.Open(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	symbols, err := exe.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "SSL_write" && s.Section != elf.SHN_UNDEF }) {
		t.Skip("this node does not export OpenSSL")
	}
	res := tooltest.JSON(t, Tool, nil, func() {
		stdin.Write([]byte{'\n'})
		cmd.Wait()
	})
	mine := res.Where(func(r tooltest.Row) bool { return r.Num("pid") == float64(cmd.Process.Pid) })
	data := map[string]string{}
	for _, r := range mine {
		data[r.Str("call")] += r.Bytes(t, "data")
	}
	if !strings.HasPrefix(data["write"], "GET /node HTTP/1.1\r\n") || !strings.HasSuffix(data["read"], "to node") {
		t.Errorf("rows of node: %q", data)
	}
}

// TestGnuTLS traces git, which Debian links with GnuTLS, requesting a nonexistent path.
func TestGnuTLS(t *testing.T) {
	needGnuTLS(t)
	cmd := tlstest.Command(t, "git", "-c", "http.sslVerify=false", "-c", "http.proxy=", "ls-remote")
	var agent string
	addr := tlstest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		agent = r.UserAgent()
		http.NotFound(w, r)
	})
	cmd.Args = append(cmd.Args, "https://"+addr+"/gnutls")
	cmd.Env = append(os.Environ(), "no_proxy=127.0.0.1", "GIT_TERMINAL_PROMPT=0")
	tlstest.Hold(t, "libgnutls.so*")
	res := tooltest.JSON(t, Tool, []string{"-o", "-n"}, func() { _ = cmd.Run() })
	data, _ := joined(t, res, "git", "write")
	if agent == "" {
		t.Fatal("git has not asked the server")
	}
	if n := strings.Count(data, "/gnutls/info/refs"); n != 1 && !strings.Contains(data, "PRI * HTTP/2.0") {
		t.Errorf("the request is shown %d times: %q", n, data)
	}
	if strings.Count(data, "PRI * HTTP/2.0") > 1 {
		t.Errorf("an HTTP/2 request is shown twice: %q", data)
	}
}

// needGnuTLS skips the test unless git's helper for HTTPS is linked with GnuTLS, itself or by
// Debian's variant of libcurl.
func needGnuTLS(t *testing.T) {
	t.Helper()
	path, err := tlstest.Command(t, "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	helper := filepath.Join(strings.TrimSpace(string(path)), "git-remote-https")
	f, err := elf.Open(helper)
	if err != nil {
		t.Skipf("git has no helper for HTTPS: %v", err)
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(libraries, func(name string) bool { return strings.Contains(name, "gnutls") }) {
		t.Skipf("%s is linked with %v, not with GnuTLS", helper, libraries)
	}
}
