// Package ssllatency shows the latency of functions of OpenSSL as histograms.
package ssllatency

import (
	"github.com/corescope/corescope/internal/openssl"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh ssllatency.bpf.c

type options struct {
	source.Interval
	source.Milliseconds
	openssl.Options
	Processes bool `flag:"pids,P" bpf:"by_process" key:"pid" help:"separate histograms for processes"`
}

// histKey mirrors struct hist_key.
type histKey struct {
	Function    openssl.Function
	Failed, PID uint32
}

type label struct {
	Function openssl.Function `json:"function" help:"function that was called"`
	Outcome  string           `json:"outcome" help:"success, or failure if the function returned 0 or less"`
	PID      uint32           `json:"pid" help:"process, in the initial PID namespace"`
}

// Tool is the definition of ssllatency.
var Tool = tool.Define(tool.Spec{
	Name:     "ssllatency",
	Category: "network",
	Summary:  "OpenSSL (TLS/SSL) latency as histograms: handshakes, reads, writes, signatures, key exchange",
	Description: `Measures the latency of calls of functions of OpenSSL. There is one histogram per function, and another one for its failed calls. Calls are counted when they return.

` + openssl.Manual + `

` + tool.ReturnsManual + `

` + openssl.Returns,
	Peers: []string{
		"bpftrace's tool does not start if the library lacks one of the functions. Here the others are traced.",
		"Failed calls have histograms of their own also for libcrypto. The result is the whole int: bpftrace's tool compares its lowest byte, so that a read of 256 bytes is a failure.",
		"Buckets are powers of two up to any latency; in bpftrace's tool they are linear up to 1 ms. Count, sum and percentiles are in JSON and CSV.",
		"ECDH is ossl_ecdh_compute_key, which calls ecdh_simple_compute_key.",
	},
	Examples: []string{
		"ssllatency --uretprobes   # also handshakes of OpenSSL 3, see above",
		"ssllatency 10                 # a report every ten seconds",
		"ssllatency -p 1234 -m         # one process, in milliseconds",
		"ssllatency -P --no-crypto     # by process, without the functions of libcrypto",
		`ssllatency --filter 'outcome == "failure"' # only failed calls`,
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
	return &source.Hists[histKey, label]{
		Plan:     tool.Plan{Files: files, Without: o.Without()},
		Interval: o.Interval,
		Unit:     o.Unit(),
		Keys:     append([]string{"function", "outcome"}, source.Keys(o)...),
		Label: func(k histKey) label {
			l := label{Function: k.Function, Outcome: "success", PID: k.PID}
			if k.Failed != 0 {
				l.Outcome = "failure"
			}
			return l
		},
	}, nil
}
