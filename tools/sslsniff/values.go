package sslsniff

import (
	"encoding/hex"
	"strconv"

	"github.com/corescope/corescope/internal/value"
)

func word[T ~uint8](n T, words []string) string {
	if int(n) < len(words) {
		return words[n]
	}
	return strconv.Itoa(int(n))
}

// library mirrors enum library.
type library uint8

func (l *library) name() string {
	return word(*l, []string{bpfLibraryOPENSSL: "openssl", bpfLibraryGNUTLS: "gnutls", bpfLibraryNSS: "nss"})
}
func (l *library) AppendText(b []byte) []byte { return append(b, l.name()...) }
func (l *library) AppendJSON(b []byte) []byte { return value.AppendString(b, l.name()) }
func (l *library) Any() any                   { return l.name() }
func (l *library) Schema() value.Schema       { return value.Schema{Type: "string"} }

// direction mirrors enum direction. Text uses the names of BCC.
type direction uint8

func (d *direction) name() string {
	return word(*d, []string{bpfDirectionWRITE: "write", bpfDirectionREAD: "read", bpfDirectionHANDSHAKE: "handshake"})
}

func (d *direction) AppendText(b []byte) []byte {
	return append(b, word(*d, []string{bpfDirectionWRITE: "WRITE/SEND", bpfDirectionREAD: "READ/RECV", bpfDirectionHANDSHAKE: "HANDSHAKE"})...)
}

func (d *direction) AppendJSON(b []byte) []byte { return value.AppendString(b, d.name()) }
func (d *direction) Any() any                   { return d.name() }
func (d *direction) Schema() value.Schema       { return value.Schema{Type: "string"} }

// data is shown as text, or in hexadecimal if hex is set.
type data struct {
	value.Bytes
	hex bool
}

func (d *data) AppendText(b []byte) []byte {
	if d.hex {
		return hex.AppendEncode(b, d.Bytes)
	}
	return d.Bytes.AppendText(b)
}

func (d *data) AppendJSON(b []byte) []byte {
	if d.hex {
		return value.AppendString(b, hex.EncodeToString(d.Bytes))
	}
	return d.Bytes.AppendJSON(b)
}

// Valid reports whether the JSON string represents the bytes exactly; hexadecimal always does.
func (d *data) Valid() bool { return d.hex || d.Bytes.Valid() }

func (d *data) Any() any {
	if d.hex {
		return hex.EncodeToString(d.Bytes)
	}
	return d.Bytes.Any()
}
