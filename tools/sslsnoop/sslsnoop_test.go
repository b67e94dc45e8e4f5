package sslsnoop

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/openssl"
	"github.com/corescope/corescope/internal/tlstest"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

const minusOne = 0xffffffff // -1 as an int in a register

func self(more ...string) []string { return append(more, "--pid", fmt.Sprint(os.Getpid())) }

// TestNames compares the names of the functions with those that the programs are attached to.
func TestNames(t *testing.T) {
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{
		"tls__uprobe__enter":     "uprobe/libssl:" + strings.Join(openssl.TLS(), ","),
		"tls__uprobe__return":    "uretprobe/libssl:" + strings.Join(openssl.TLS(), ","),
		"crypto__uprobe__enter":  "uprobe/libcrypto:" + strings.Join(openssl.Crypto(), ","),
		"crypto__uprobe__return": "uretprobe/libcrypto:" + strings.Join(openssl.Crypto(), ","),
	} {
		if got := spec.Programs[program].SectionName; got != want {
			t.Errorf("section %s of %s, want %s", got, program, want)
		}
	}
}

// call is what is compared of a row.
type call struct {
	function string
	ret      float64
}

func rows(res *tooltest.Result) (all []call) {
	for _, r := range res.Events {
		all = append(all, call{r.Str("function"), r.Num("ret")})
	}
	return all
}

// TestCalls calls each function with known results.
func TestCalls(t *testing.T) {
	tls, crypto := native.Open(t, "libssl.so.3", openssl.TLS()), native.Open(t, "libcrypto.so.3", openssl.Crypto())
	const sleep = 3 * time.Millisecond
	load := func() {
		for i, function := range openssl.TLS() {
			tls.Call(function, native.Call{Args: [7]uint64{0xabc0}, Ret: uint64(i + 1), Sleep: sleep})
		}
		for i, function := range openssl.Crypto() {
			crypto.Call(function, native.Call{Ret: uint64(256 * i)})
		}
		tls.Call("SSL_read", native.Call{Ret: minusOne})
	}
	var all []call
	for i, function := range openssl.TLS() {
		all = append(all, call{function, float64(i + 1)})
	}
	for i, function := range openssl.Crypto() {
		all = append(all, call{function, float64(256 * i)})
	}
	all = append(all, call{"SSL_read", -1})
	for _, tt := range []struct {
		args []string
		keep func(call) bool
	}{
		{nil, func(call) bool { return true }},
		{[]string{"-x"}, func(r call) bool { return r.ret <= 0 }},
		{[]string{"--no-crypto"}, func(r call) bool { return strings.HasPrefix(r.function, "SSL_") }},
	} {
		want := slices.DeleteFunc(slices.Clone(all), func(r call) bool { return !tt.keep(r) })
		res := tooltest.JSON(t, Tool, self(append(tt.args, "--columns", "+channel")...), load)
		if got := rows(res); !slices.Equal(got, want) {
			t.Errorf("%q: rows %v, want %v", tt.args, got, want)
		}
		for _, r := range res.Events {
			if isTLS := slices.Contains(openssl.TLS(), r.Str("function")); isTLS && r.Num("ret") > 0 && (r.Num("delta_ns") < float64(sleep) || r.Num("channel") != 0xabc0) {
				t.Errorf("row %v, want %v and channel %d", r, sleep, 0xabc0)
			}
		}
		if lost := tooltest.Lost(res.Summary); lost != 0 {
			t.Errorf("%d lost: %v", lost, res.Summary)
		}
	}
}

// TestNested makes calls within calls.
func TestNested(t *testing.T) {
	tls, crypto := native.Open(t, "libssl.so.3", openssl.TLS()), native.Open(t, "libcrypto.so.3", openssl.Crypto())
	const sleep = 3 * time.Millisecond
	res := tooltest.JSON(t, Tool, self(), func() {
		tls.Call("SSL_read", native.Call{Ret: 7, Sleep: sleep, Inner: "SSL_do_handshake"})
		tls.Call("SSL_write_ex", native.Call{Args: [7]uint64{1}, Ret: 1, Inner: "SSL_write_ex2"})
		crypto.Call("RSA_sign", native.Call{Ret: 1, Sleep: sleep, Inner: "rsa_ossl_private_encrypt"})
	})
	want := []call{{"SSL_do_handshake", 7}, {"SSL_read", 7}, {"SSL_write_ex", 1}, {"rsa_ossl_private_encrypt", 1}, {"RSA_sign", 1}}
	if got := rows(res); !slices.Equal(got, want) {
		t.Fatalf("rows %v, want %v", got, want)
	}
	for _, i := range []int{1, 4} {
		if inner, outer := res.Events[i-1].Num("delta_ns"), res.Events[i].Num("delta_ns"); outer < inner || outer < float64(sleep) {
			t.Errorf("%s took %v ns, and the call in it %v ns", want[i].function, outer, inner)
		}
	}
}

// TestMissing checks that functions without symbols are reported.
func TestMissing(t *testing.T) {
	lib := native.Open(t, "libcrypto.so.3", []string{"RSA_sign"})
	tooltest.Root(t)
	var out, messages strings.Builder
	code := tool.Run(t.Context(), Tool, self("--duration", "1ms"), &out, &messages)
	errOut := messages.String()
	if code != 0 || !strings.Contains(errOut, lib.Path+" has no symbols for these functions") ||
		!strings.Contains(errOut, "rsa_ossl_private_encrypt, ") || strings.Contains(errOut, "RSA_sign") {
		t.Errorf("exit code %d, messages %s", code, errOut)
	}
}

// TestReal compares the results of the client of OpenSSL with the data that it transferred.
func TestReal(t *testing.T) {
	body := strings.Repeat("all of this\n", 3000)
	addr := tlstest.Serve(t, tlstest.Text(body))
	request := "GET / HTTP/1.0\r\n\r\n"
	cmd := tlstest.Command(t, "openssl", "s_client", "-quiet", "-ign_eof", "-connect", addr)
	cmd.Stdin = strings.NewReader(request)
	var out strings.Builder
	cmd.Stdout = &out
	tlstest.Hold(t, "libssl.so*")
	tlstest.Hold(t, "libcrypto.so*")
	res := tooltest.JSON(t, Tool, []string{"--uretprobes"}, func() { _ = cmd.Run() }) // the server closes the connection
	bytes, calls := map[string]float64{}, map[string]int{}
	for _, r := range res.Events {
		if r.Num("pid") != float64(cmd.Process.Pid) {
			continue
		}
		calls[r.Str("function")]++
		if r.Num("ret") > 0 {
			bytes[r.Str("function")] += r.Num("ret")
		}
	}
	if bytes["SSL_write"] != float64(len(request)) || bytes["SSL_read"] != float64(out.Len()) {
		t.Errorf("%v bytes written and %v read, the client wrote %d and read %d", bytes["SSL_write"], bytes["SSL_read"], len(request), out.Len())
	}
	if calls["EVP_PKEY_derive"] == 0 || calls["EVP_DigestVerify"] == 0 {
		t.Errorf("calls %v: no key exchange, or no check of a signature", calls)
	}
}

func TestText(t *testing.T) {
	tls := native.Open(t, "libssl.so.3", openssl.TLS())
	out := tooltest.Text(t, Tool, self(), func() { tls.Call("SSL_write", native.Call{Ret: 5}) })
	head, line, _ := strings.Cut(out, "\n")
	fields := strings.Fields(line)
	if strings.Join(strings.Fields(head), " ") != "TIME(s) TID COMM LAT(us) RET FUNC" || len(fields) < 6 ||
		strings.Join(fields[len(fields)-2:], " ") != "5 SSL_write" {
		t.Errorf("text is %q", out)
	}
	tooltest.Fails(t, Tool, []string{"--extra-lib", "openssl:/x"}, 2, "libssl:PATH")
}
