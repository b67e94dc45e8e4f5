// Package sslsniff shows what programs send and receive by TLS, in the clear.
package sslsniff

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh sslsniff.bpf.c

type options struct {
	Extra     bool     `flag:"extra,x" help:"show the user and the thread"`
	NoOpenSSL bool     `flag:"no-openssl,o" help:"leave OpenSSL out"`
	NoGnuTLS  bool     `flag:"no-gnutls,g" help:"leave GnuTLS out"`
	NoNSS     bool     `flag:"no-nss,n" help:"leave NSS out"`
	HexDump   bool     `flag:"hexdump" help:"show the data in hexadecimal"`
	Bytes     uint32   `flag:"max-buffer-size" bpf:"targ_data_bytes" help:"show so many bytes of each call, 16,384 at most"`
	Latency   bool     `flag:"latency,l" help:"show how long the call took"`
	Handshake bool     `flag:"handshake" help:"show handshakes as well"`
	ExtraLib  []string `flag:"extra-lib" arg:"LIBRARY:PATH" help:"also this file, as a library of openssl, gnutls or nss"`
}

// dataMax is DATA_MAX.
const dataMax = 16384

type event struct {
	value.Task
	Latency   value.Nanoseconds `json:"delta_ns" col:"LAT(ms),width=7,right" help:"from where the function is entered to where it returns (CLOCK_BOOTTIME): of a handshake that does not block, its last call alone" btf:"delta_ns"`
	Channel   uint64            `json:"channel" col:"CHANNEL,width=15,extra" help:"address of the library's structure of the connection: the same for all calls of one"`
	Len       uint64            `json:"len" col:"LEN,width=7" help:"bytes that the call wrote or read"`
	Ret       int32             `json:"ret" col:"RET,width=5,right,extra" help:"what the function returned"`
	DataLen   uint32
	Library   library   `json:"library" col:"LIBRARY,width=7" help:"openssl, gnutls or nss"`
	Direction direction `json:"call" col:"FUNC,width=12" help:"write, read or handshake"`
	Truncated bool      `json:"truncated" col:"CUT,width=5" help:"there are less bytes in data than the call moved: they are more than --max-buffer-size, or could not be read"`
	_         [5]byte
}

type row struct {
	event
	Elapsed value.Elapsed `json:"elapsed_ns" col:"TIME(s),width=14,extra" help:"time since the tool was started (CLOCK_BOOTTIME)"`
	Data    data          `json:"data" col:"DATA,width=40" help:"what was written or read; with --hexdump in hexadecimal"`

	start value.Time
}

// Tool is sslsniff.
var Tool = tool.Define(tool.Spec{
	Name:     "sslsniff",
	Category: "network",
	Summary:  "Show what programs send and receive by TLS, in the clear",
	Description: `Shows each call that writes or reads data by a library for TLS, as it returns, with the data before they are encrypted or after they are decrypted: SSL_write(3), SSL_read(3) and their forms with _ex of OpenSSL (also of LibreSSL and BoringSSL, where they are shared libraries), gnutls_record_send(3), gnutls_record_recv(3) and their forms of GnuTLS, and PR_Write, PR_Send, PR_Read and PR_Recv of NSS. Calls that moved no data, as there was none yet, are no rows.

LEN is what the call moved, however much of it is shown: the first 8,192 bytes, or --max-buffer-size. Where that is less, truncated is true.

The functions are probed in every such library that a process has mapped: those of containers too, and those whose file was deleted by an upgrade. A library that is mapped later is probed some milliseconds after; what is sent before that is not seen. NSS moves the bytes of plain files and sockets by the same functions: they are rows too.

Programs that have OpenSSL or GnuTLS linked in and export its functions, as Node.js does, are probed too. Where they do not export them but have a table of symbols, --pid or --extra-lib finds them, as openssl:/opt/envoy.

Not seen are programs that have their library linked in and neither; programs with a library of their own, such as those in Go, Rust (rustls) and Java; what goes through BIO_f_ssl(3) or SSL_sendfile(3); TLS by the kernel; and 32-bit programs.`,
	Peers: []string{
		"-d (BCC: debug output) is -v.",
		"Text has the data in one line, behind the other columns, with all that is not printable escaped; BCC prints them as they are, over several lines.",
		"--handshake works without -l too, and shows GnuTLS's and every call of a handshake that does not block, with ret.",
		"--max-buffer-size has a limit of 16,384, what a record of TLS holds.",
		"SSL_write_ex and SSL_read_ex, by which Python does all its TLS, and the libraries of containers are seen.",
	},
	Examples: []string{
		"sslsniff                                        # all TLS of the machine",
		"sslsniff -p 1234 -l                             # of one process, with the time that calls took",
		"sslsniff --extra-lib openssl:/opt/envoy -g -n   # of a program with OpenSSL linked in",
		"sslsniff --filter 'data contains \"Authorization\"' # calls whose data have a word",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "uid": "u", "comm": "c"},
}, options{Bytes: 8192}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	if o.Bytes > dataMax {
		return nil, fmt.Errorf("--max-buffer-size %d: %d at most", o.Bytes, dataMax)
	}
	files, err := o.files()
	if err != nil {
		return nil, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return nil, fmt.Errorf("read boot clock: %w", err)
	}
	return &tool.Events[row]{
		Plan:        tool.Plan{Files: files, Without: o.without()},
		Columns:     o.columns(),
		BufferBytes: 16 << 20,
		Row:         row{start: value.Time(now.Nano()), Data: data{hex: o.HexDump}},
	}, nil
}

// files are the libraries, with those of --extra-lib.
func (o *options) files() (map[string]binary.Files, error) {
	files := map[string]binary.Files{
		"openssl": {Names: []string{"libssl.so*"}, Programs: true},
		"gnutls":  {Names: []string{"libgnutls.so*"}, Programs: true},
		"nss":     {Names: []string{"libnspr4.so*"}},
	}
	for _, word := range o.ExtraLib {
		name, path, ok := strings.Cut(word, ":")
		f, known := files[name]
		if !ok || !known {
			return nil, errors.New("--extra-lib is openssl:PATH, gnutls:PATH or nss:PATH")
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

// Decode reads the data behind the event.
func (r *row) Decode(tail []byte) error {
	if int(r.DataLen) > len(tail) {
		return fmt.Errorf("event has %d bytes of data, not %d", len(tail), r.DataLen)
	}
	r.Data.Bytes = nil
	if r.Len > 0 {
		r.Data.Bytes = tail[:r.DataLen]
	}
	r.Elapsed = value.Elapsed(r.Time - r.start)
	return nil
}
