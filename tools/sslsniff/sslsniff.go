// Package sslsniff traces the plaintext of TLS connections.
package sslsniff

import (
	"errors"
	"fmt"
	"strings"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh sslsniff.bpf.c -type library -type direction

type options struct {
	Extra     bool     `flag:"extra,x" help:"show user and thread"`
	NoOpenSSL bool     `flag:"no-openssl,o" help:"do not trace OpenSSL"`
	NoGnuTLS  bool     `flag:"no-gnutls,g" help:"do not trace GnuTLS"`
	NoNSS     bool     `flag:"no-nss,n" help:"do not trace NSS"`
	HexDump   bool     `flag:"hexdump" help:"show the data in hexadecimal"`
	Bytes     uint32   `flag:"max-buffer-size" arg:"BYTES" max:"16384" bpf:"targ_data_bytes" help:"show at most this number of bytes of each call"`
	Latency   bool     `flag:"latency,l" help:"show the duration of calls"`
	Debug     bool     `flag:"debug,d" sets:"verbose=true" help:"same as --verbose, for compatibility with BCC"`
	Handshake bool     `flag:"handshake" help:"include handshakes"`
	ExtraLib  []string `flag:"extra-lib" arg:"LIBRARY:PATH" help:"also trace this file, as library openssl, gnutls or nss; with --pid an absolute path is first looked up below the root of the process"`
}

type event struct {
	value.Task
	Latency   value.Nanoseconds `json:"delta_ns" col:"LAT(ms),width=7,right" help:"time from entry to return of the function (CLOCK_BOOTTIME); of a non-blocking handshake that of its last call" btf:"delta_ns"`
	Channel   uint64            `json:"channel" col:"CHANNEL,width=15,extra" help:"address of the library's connection structure, which is the same for all calls on one connection"`
	Len       uint64            `json:"len" col:"LEN,width=7" help:"bytes written or read by the call"`
	Ret       int32             `json:"ret" col:"RET,width=5,right,extra" help:"return value of the function"`
	DataLen   uint32
	Library   library   `json:"library" col:"LIBRARY,width=7" help:"openssl, gnutls or nss"`
	Direction direction `json:"call" col:"FUNC,width=12" help:"write, read or handshake"`
	Truncated bool      `json:"truncated" col:"CUT,width=5" help:"data has fewer bytes than the call transferred: because of --max-buffer-size, or because memory could not be read"`
	_         [5]byte
}

type row struct {
	event
	source.Elapsed
	Data data `json:"data" col:"DATA,width=40" help:"plaintext written or read; in hexadecimal with --hexdump"`
}

// Tool is the definition of sslsniff.
var Tool = tool.Define(tool.Spec{
	Name:     "sslsniff",
	Category: "network",
	Summary:  "Trace plaintext of TLS/SSL connections (OpenSSL, GnuTLS, NSS)",
	Description: `Shows each call that writes or reads data with a TLS library when it returns, with the data before encryption or after decryption: SSL_write(3), SSL_read(3) and their _ex variants of OpenSSL (also LibreSSL and BoringSSL as shared libraries), gnutls_record_send(3), gnutls_record_recv(3) and their variants of GnuTLS, and PR_Write, PR_Send, PR_Read and PR_Recv of NSS. Calls that transferred no data are not shown.

LEN is the number of bytes transferred. Only the first 8,192 bytes, or --max-buffer-size, are shown; if there are more, truncated is true.

The functions are traced in every such library that a process has mapped, including those in containers and those whose file was deleted by an upgrade. If a library is mapped later, the tool attaches to it within milliseconds; data sent before that is missed. NSS uses the same functions for plain files and sockets, which are shown too. Calls that did not return are counted as no_return in the summary, and returns of calls whose entry was not observed, such as a read that was blocked when the tool started, as unseen_calls. The latter are not counted where a uretprobe is used, or where a function ends with return instructions of another one.

` + tool.ReturnsManual + ` Of OpenSSL 3.0, this concerns SSL_do_handshake (--handshake); of NSS, all functions.

Programs with statically linked OpenSSL or GnuTLS are traced if they export its functions, as Node.js does. If they do not export them but have a symbol table, use --pid or --extra-lib, such as openssl:/opt/envoy.

The following is not traced: statically linked programs without exported functions and symbols; programs with a TLS implementation of their own, such as those in Go, Rust (rustls) and Java; BIO_f_ssl(3) and SSL_sendfile(3); kernel TLS; 32-bit programs.

sslsnoop shows the latency and the result of each call of OpenSSL, also of calls without data, and of its cryptographic functions. ssllatency shows them as histograms.`,
	Peers: []string{
		"-d (BCC: debug output) is --debug, the same as -v.",
		"Text shows data on one line, after the other columns, with non-printable characters escaped; BCC prints it unescaped on several lines.",
		"--handshake also works without -l, includes GnuTLS, and shows every call of a non-blocking handshake, with ret.",
		"--max-buffer-size is limited to 16,384, the size of a TLS record.",
		"SSL_write_ex and SSL_read_ex, which Python uses for all TLS, and libraries in containers are traced.",
	},
	Examples: []string{
		"sslsniff                                        # all TLS on the machine",
		"sslsniff -p 1234 -l                             # one process, with the duration of calls",
		"sslsniff --extra-lib openssl:/opt/envoy -g -n   # a program with statically linked OpenSSL",
		`sslsniff --filter 'data contains "Authorization"' # calls whose data contains a word`,
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p", "uid": "u", "comm": "c"},
}, options{Bytes: 8192}, build)

// bufferBytes holds 8,000 calls at once, of 8,192 bytes each.
const bufferBytes = 64 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	if o.NoOpenSSL && o.NoGnuTLS && o.NoNSS {
		return nil, errors.New("--no-openssl, --no-gnutls and --no-nss leave no library to trace: use at most two of them")
	}
	files, err := o.files()
	if err != nil {
		return nil, err
	}
	return &source.Events[row]{
		Plan:        tool.Plan{Files: files, Without: o.without()},
		Columns:     o.columns(),
		BufferBytes: bufferBytes,
		Widths:      map[string]int{"elapsed_ns": 14},
		Row:         row{Data: data{hex: o.HexDump}},
	}, nil
}

// files returns the files of each library, including those of --extra-lib.
func (o *options) files() (map[string]binary.Files, error) {
	files := map[string]binary.Files{
		"openssl": {Names: []string{"libssl.so*"}, Programs: true},
		"gnutls":  {Names: []string{"libgnutls.so*"}, Programs: true},
		"nss":     {Names: []string{"libnspr4.so*"}},
	}
	for _, word := range o.ExtraLib {
		name, path, ok := strings.Cut(word, ":")
		f, isLibrary := files[name]
		if !ok || !isLibrary {
			return nil, errors.New("--extra-lib must be openssl:PATH, gnutls:PATH or nss:PATH")
		}
		f.Extra = append(f.Extra, path)
		files[name] = f
	}
	return files, nil
}

func (o *options) without() []string {
	var hooks []string
	for _, hook := range []struct {
		name string
		off  bool
	}{
		{"openssl", o.NoOpenSSL}, {"openssl_handshake", o.NoOpenSSL || !o.Handshake},
		{"gnutls", o.NoGnuTLS}, {"gnutls_handshake", o.NoGnuTLS || !o.Handshake},
		{"nss", o.NoNSS},
	} {
		if hook.off {
			hooks = append(hooks, hook.name)
		}
	}
	return hooks
}

func (o *options) columns() []string {
	cols := []string{"call", "elapsed_ns", "comm", "pid", "len"}
	if o.Extra {
		cols = append(cols, "uid", "tid")
	}
	if o.Latency {
		cols = append(cols, "delta_ns")
	}
	return append(cols, "data")
}

// Decode reads the data, which follows the event.
func (r *row) Decode(tail []byte) error {
	if int(r.DataLen) > len(tail) {
		return fmt.Errorf("tail has %d bytes, want %d of data", len(tail), r.DataLen)
	}
	r.Data.Bytes = nil
	if r.Len > 0 {
		r.Data.Bytes = tail[:r.DataLen]
	}
	return nil
}
