// Package tlstest has a TLS server and access to installed libraries, for live tests.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Serve starts a server with Go's TLS that passes each request to handle.
func Serve(t *testing.T, handle http.HandlerFunc) (addr string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	cert, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: handle}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

// Command returns a command of an installed program. It skips the test if the program is missing.
func Command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("program that uses the library is not installed: %v", err)
	}
	return exec.Command(path, args...)
}

// Hold maps the installed library with this name, so that the tool attaches to it from the start,
// not only when the traced program has mapped it.
func Hold(t *testing.T, name string) {
	t.Helper()
	for _, dir := range []string{"/usr/lib/*/", "/usr/lib/", "/usr/lib64/", "/usr/local/lib/"} {
		paths, err := filepath.Glob(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			b, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Munmap(b) })
		}
	}
}

// Text answers each request with a text.
func Text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}
