// Package sslsnoop traces handshakes, reads, writes and cryptographic functions of OpenSSL.
package sslsnoop

import (
	"github.com/corescope/corescope/internal/openssl"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh sslsnoop.bpf.c

type options struct {
	openssl.Options
	Failed bool `flag:"failed,x" bpf:"targ_failed" help:"only failed calls: those that returned 0 or less"`
}

type event struct {
	value.Task
	Latency  value.Micros     `json:"delta_ns" col:"LAT(us),width=10,right" help:"time from entry to return of the function (CLOCK_BOOTTIME); text shows microseconds" btf:"delta_ns"`
	Channel  uint64           `json:"channel" col:"CHANNEL,width=15,extra" help:"address of OpenSSL's connection structure, which is the same for all calls on one connection; 0 for functions of libcrypto"`
	Function openssl.Function `json:"function" col:"FUNC,width=24" help:"function that was called"`
	Ret      int32            `json:"ret" col:"RET,width=6,right" help:"return value of the function, as an int"`
}

type row struct {
	event
	source.Elapsed
}

// Tool is the definition of sslsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "sslsnoop",
	Category: "network",
	Summary:  "Trace OpenSSL (TLS/SSL) handshakes, reads, writes, signatures and key exchange, with latency",
	Description: `Shows each call of a function of OpenSSL when it returns, with its latency and return value, without the data.

` + openssl.Manual + `

` + tool.ReturnsManual + `

` + openssl.Returns,
	Peers: []string{
		"bpftrace's tool does not start if the library lacks one of the functions. Here the others are traced.",
		"Nested calls are distinguished: bpftrace's tool keeps one start time per thread and library, so RSA_sign has no row if it calls rsa_ossl_private_encrypt.",
		"The _ex variants, which Python uses for all TLS, and the functions EVP_* are traced too.",
		"TIME(s) is in seconds. COMM is wider than eight characters.",
	},
	Examples: []string{
		"sslsnoop --uretprobes   # also handshakes of OpenSSL 3, see above",
		"sslsnoop                                       # all calls on the machine",
		"sslsnoop -p 1234 -x                            # failed calls of one process",
		"sslsnoop --no-crypto                           # without the functions of libcrypto",
		`sslsnoop --filter 'function == "SSL_do_handshake" && delta_ns > 10000000' # slow handshakes`,
		"sslsnoop --extra-lib libssl:/opt/envoy --extra-lib libcrypto:/opt/envoy # statically linked",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p", "uid": "u", "comm": "c"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	files, err := o.Files()
	if err != nil {
		return nil, err
	}
	return &source.Events[row]{
		Plan:        tool.Plan{Files: files, Without: o.Without()},
		Columns:     []string{"elapsed_ns", "tid", "comm", "delta_ns", "ret", "function"},
		BufferBytes: 4 << 20,
	}, nil
}
