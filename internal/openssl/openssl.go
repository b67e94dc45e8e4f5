// Package openssl has what the tools for calls of OpenSSL share (openssl.bpf.h).
package openssl

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/value"
)

// Options select the files and functions.
type Options struct {
	NoCrypto bool     `flag:"no-crypto" help:"only functions of libssl, not those of libcrypto"`
	ExtraLib []string `flag:"extra-lib" arg:"LIBRARY:PATH" help:"also trace this file, as library libssl or libcrypto; with --pid an absolute path is first looked up below the root of the process"`
}

// Without returns the hooks that are not needed.
func (o *Options) Without() []string {
	if o.NoCrypto {
		return []string{"crypto"}
	}
	return nil
}

// Files returns the files of both libraries.
func (o *Options) Files() (map[string]binary.Files, error) {
	files := map[string]binary.Files{
		"libssl":    {Names: []string{"libssl.so*"}, Programs: true},
		"libcrypto": {Names: []string{"libcrypto.so*"}, Programs: true, Whole: true},
	}
	for _, word := range o.ExtraLib {
		library, path, ok := strings.Cut(word, ":")
		f, isLibrary := files[library]
		if !ok || !isLibrary {
			return nil, fmt.Errorf("--extra-lib %s: want libssl:PATH or libcrypto:PATH", word)
		}
		f.Extra = append(f.Extra, path)
		files[library] = f
	}
	return files, nil
}

// TLS lists the functions of libssl in the order of TLS_FUNCTIONS.
func TLS() []string {
	return []string{"SSL_read", "SSL_read_ex", "SSL_write", "SSL_write_ex", "SSL_write_ex2", "SSL_do_handshake"}
}

// Crypto lists the functions of libcrypto in the order of CRYPTO_FUNCTIONS.
func Crypto() []string {
	return []string{
		"rsa_ossl_public_encrypt", "rsa_ossl_public_decrypt", "rsa_ossl_private_encrypt", "rsa_ossl_private_decrypt",
		"RSA_sign", "RSA_verify", "ossl_ecdsa_sign", "ossl_ecdsa_verify", "ossl_ecdh_compute_key",
		"EVP_DigestSign", "EVP_DigestVerify", "EVP_PKEY_sign", "EVP_PKEY_verify", "EVP_PKEY_encrypt", "EVP_PKEY_decrypt",
		"EVP_PKEY_derive", "EVP_PKEY_encapsulate", "EVP_PKEY_decapsulate", "EVP_PKEY_generate",
	}
}

// Function is the number of a function. It is shown as its name.
type Function uint32

// Name returns the name of the function.
func (f *Function) Name() string {
	const cryptoFirst = 32 // CRYPTO_FIRST
	if tls := TLS(); int(*f) < len(tls) {
		return tls[*f]
	}
	if crypto := Crypto(); *f >= cryptoFirst && int(*f-cryptoFirst) < len(crypto) {
		return crypto[*f-cryptoFirst]
	}
	return strconv.Itoa(int(*f))
}

func (f *Function) AppendText(b []byte) []byte { return append(b, f.Name()...) }
func (f *Function) AppendJSON(b []byte) []byte { return value.AppendString(b, f.Name()) }
func (f *Function) Any() any                   { return f.Name() }
func (f *Function) Schema() value.Schema       { return value.Schema{Type: "string"} }

// Returns states in a paragraph of the manual pages which functions need --uretprobes.
const Returns = `Of OpenSSL 3.0 on x86-64 this concerns SSL_do_handshake, RSA_verify and most of the functions EVP_*, so that handshakes are only traced with --uretprobes. OpenSSL itself throws no exceptions. The option is safe unless a C++ program throws in a callback of OpenSSL, or cancels threads that use it.`

// Manual describes in paragraphs of the manual pages which calls are observed.
const Manual = `Of libssl these are SSL_do_handshake(3), SSL_read(3), SSL_write(3) and the _ex variants of the latter two. Of libcrypto these are the functions for signatures, key exchange and encryption with public keys: rsa_ossl_public_encrypt, rsa_ossl_public_decrypt, rsa_ossl_private_encrypt, rsa_ossl_private_decrypt, RSA_sign, RSA_verify, ossl_ecdsa_sign, ossl_ecdsa_verify, ossl_ecdh_compute_key, and the public functions through which OpenSSL 3 calls them and all other algorithms: EVP_DigestSign, EVP_DigestVerify, EVP_PKEY_sign, EVP_PKEY_verify, EVP_PKEY_encrypt, EVP_PKEY_decrypt, EVP_PKEY_derive, EVP_PKEY_encapsulate, EVP_PKEY_decapsulate and EVP_PKEY_generate.

The time of a call is from its entry to its return (CLOCK_BOOTTIME). It includes waits for the peer, and nested calls, such as a signature in a handshake, which are calls of their own. SSL_write_ex2 within SSL_write_ex is not a call of its own. If a function ends with a jump to another one of these functions, both are one call of the first one.

A call has failed if it returned 0 or less. That includes calls of non-blocking connections that must be repeated (SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE), and invalid signatures.

Functions whose names begin with a lower-case letter are internal. Only a library with a symbol table (.symtab) has symbols for them; those of distributions usually have none. The tool reports which functions of a file it cannot trace.

The functions are traced in every such library that a process has mapped, including those in containers. Programs with statically linked OpenSSL are traced if they export its functions, as Node.js does, or with --pid or --extra-lib if they have a symbol table. If a library is mapped later, the tool attaches to it within milliseconds. TLS implementations of other libraries and languages (GnuTLS, NSS, Go, Rust, Java), kernel TLS and 32-bit programs are not traced. sslsniff shows the data, also of GnuTLS and NSS.

Calls that did not return are counted as no_return in the summary, and returns of calls whose entry was not observed as unseen_calls.`
