package ssllatency

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/openssl"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

const minusOne = 0xffffffff // -1 as an int in a register

// TestLatency calls functions a known number of times, for at least a known time.
func TestLatency(t *testing.T) {
	tls, crypto := native.Open(t, "libssl.so.3", openssl.TLS()), native.Open(t, "libcrypto.so.3", openssl.Crypto())
	const n, sleep = 20, time.Millisecond
	call := func() {
		for i := range n {
			tls.Call("SSL_read", native.Call{Ret: 256, Sleep: sleep, Inner: "SSL_do_handshake"})
			if i < 5 {
				tls.Call("SSL_read", native.Call{Ret: minusOne})
				crypto.Call("RSA_verify", native.Call{})
			}
			crypto.Call("ossl_ecdsa_sign", native.Call{Ret: 1})
		}
	}
	pid := fmt.Sprint(os.Getpid())
	for _, args := range [][]string{{"--pid", pid}, {"--pid", pid, "-P"}} {
		var took time.Duration
		res := tooltest.JSON(t, Tool, args, func() {
			begin := time.Now()
			call()
			took = time.Since(begin)
		})
		want := map[string]float64{
			"SSL_read success": n, "SSL_do_handshake success": n, "SSL_read failure": 5, "RSA_verify failure": 5, "ossl_ecdsa_sign success": n,
		}
		for _, h := range res.Histograms {
			key := h.Object("key")
			name := key.Str("function") + " " + key.Str("outcome")
			if h.Num("count") != want[name] || h.Num("sum")*1000 > float64(took) {
				t.Errorf("histogram %v: want %v calls in %v", h, want[name], took)
			}
			if name == "SSL_read success" && h.Num("min")*1000 < float64(sleep) {
				t.Errorf("histogram %v: each call takes at least %v", h, sleep)
			}
			if key.Has("pid") != (len(args) > 2) || key.Has("pid") && fmt.Sprint(key.Num("pid")) != pid {
				t.Errorf("key %v, want process %s only with -P", key, pid)
			}
			delete(want, name)
		}
		if len(want) > 0 || tooltest.Lost(res.Summary) != 0 {
			t.Errorf("missing histograms %v, summary %v", want, res.Summary)
		}
	}
}

func TestText(t *testing.T) {
	tls := native.Open(t, "libssl.so.3", openssl.TLS())
	out := tooltest.Text(t, Tool, []string{"--pid", fmt.Sprint(os.Getpid()), "-m"}, func() {
		tls.Call("SSL_write", native.Call{Ret: 5})
	})
	if !strings.Contains(out, "msecs") || !strings.Contains(out, "function = SSL_write") || !strings.Contains(out, "outcome = success") {
		t.Errorf("text is %q", out)
	}
}

// TestExported checks exemplars, by function and outcome.
func TestExported(t *testing.T) {
	tls := native.Open(t, "libssl.so.3", openssl.TLS())
	pid := os.Getpid()
	run := tooltest.Export(t, Tool, []string{"--pid", fmt.Sprint(pid)}, func() {
		tls.Call("SSL_read", native.Call{Ret: 256, Sleep: time.Millisecond})
		tls.Call("SSL_read", native.Call{Ret: minusOne})
	})
	if len(run.Histograms) != 2 {
		t.Fatalf("%d histograms, want 2", len(run.Histograms))
	}
	for _, h := range run.Histograms {
		h.CheckBuckets(t)
		h.CheckTask(t, pid)
		if isLong := h.Exponential.Sum > 0.001; h.Exponential.Count != 1 || isLong != (h.Key["outcome"] == "success") && !isLong {
			t.Errorf("%+v", h)
		}
	}
}
