package webconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// authority creates certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// issue returns a certificate and its key.
func (a *authority) issue(t *testing.T, serial int64, name string) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// serve starts a server and returns its address.
func serve(t *testing.T, path string, report func(error)) (string, *Server) {
	t.Helper()
	s, err := New(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }), report)
	if err != nil {
		t.Fatal(err)
	}
	s.guard.pause = time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), s
}

// get returns the status and the body, or the error.
func get(url string, c *tls.Config, user, password string) string {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return err.Error()
	}
	if user != "" {
		r.SetBasicAuth(user, password)
	}
	transport := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	serial := ""
	if response.TLS != nil {
		serial = fmt.Sprint(" ", response.TLS.PeerCertificates[0].SerialNumber)
	}
	return fmt.Sprint(response.StatusCode, " ", strings.TrimSpace(string(body)), serial, " ", response.Header.Get("X-Frame-Options"))
}

func hash(t *testing.T, password string) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(h)
}

func TestPlain(t *testing.T) {
	address, _ := serve(t, "", nil)
	if got := get("http://"+address, nil, "", ""); got != "200 HTTP/1.1 " {
		t.Error(got)
	}
	empty := write(t, t.TempDir(), "web.yml", "# nothing\n")
	address, _ = serve(t, empty, nil)
	if got := get("http://"+address, nil, "", ""); got != "200 HTTP/1.1 " {
		t.Error(got)
	}
}

func TestBasicAuth(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "web.yml", fmt.Sprintf("basic_auth_users:\n  ann: %q\n  bob: %q\nhttp_server_config:\n  headers:\n    X-Frame-Options: deny\n", hash(t, "a"), hash(t, "b")))
	address, _ := serve(t, path, func(err error) { t.Error(err) })
	const no = "401 user name and password are required deny"
	for _, tt := range []struct{ user, password, want string }{
		{"ann", "a", "200 HTTP/1.1 deny"}, {"bob", "b", "200 HTTP/1.1 deny"}, {"ann", "a", "200 HTTP/1.1 deny"},
		{"ann", "b", no}, {"carl", "a", no}, {"carl", "b", no}, {"", "", no}, {"ann", "", no}, {"ann", strings.Repeat("x", 100), no},
	} {
		if got := get("http://"+address, nil, tt.user, tt.password); got != tt.want {
			t.Errorf("%s:%s: %s, want %s", tt.user, tt.password, got, tt.want)
		}
	}
	// Changes apply at once: a removed user is refused, and a former password.
	write(t, dir, "web.yml", fmt.Sprintf("basic_auth_users: {ann: %q}\n", hash(t, "new")))
	for _, tt := range []struct{ user, password, want string }{
		{"ann", "a", "401 user name and password are required "}, {"bob", "b", "401 user name and password are required "}, {"ann", "new", "200 HTTP/1.1 "},
	} {
		if got := get("http://"+address, nil, tt.user, tt.password); got != tt.want {
			t.Errorf("%s:%s: %s, want %s", tt.user, tt.password, got, tt.want)
		}
	}
}

// TestManyPasswords checks that attempts do not pile up, and do not disturb a user who is known.
func TestManyPasswords(t *testing.T) {
	users := map[string]string{"ann": hash(t, "a")}
	g := newGuard(0)
	if v := g.check(users, "ann", "a"); v != allowed {
		t.Fatal(v)
	}
	g.checking.Lock()
	results := make(chan verdict)
	var group sync.WaitGroup
	for i := range maxWaiting + 5 {
		group.Go(func() { results <- g.check(users, "ann", fmt.Sprint(i)) })
	}
	for range 5 {
		if v := <-results; v != busy {
			t.Errorf("verdict %d", v)
		}
	}
	if v := g.check(users, "ann", "a"); v != allowed {
		t.Errorf("verdict %d for a known user", v)
	}
	g.checking.Unlock()
	for range maxWaiting {
		if v := <-results; v != denied {
			t.Errorf("verdict %d", v)
		}
	}
	group.Wait()
	for i := range maxRight + 5 {
		users["u"] = hash(t, fmt.Sprint(i))
		if v := g.check(users, "u", fmt.Sprint(i)); v != allowed {
			t.Errorf("verdict %d", v)
		}
	}
	if len(g.right) > maxRight {
		t.Errorf("%d passwords are remembered", len(g.right))
	}
}

func TestTLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	cert, key := ca.issue(t, 100, "server")
	write(t, dir, "cert.pem", string(cert))
	write(t, dir, "key.pem", string(key))
	write(t, dir, "ca.pem", string(ca.pem))
	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	client := func(a *authority, name string) *tls.Config {
		c := &tls.Config{RootCAs: roots}
		if a != nil {
			cert, key := a.issue(t, 5, name)
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		return c
	}
	const base = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
	const refused = ""
	const verify = base + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"
	for _, tt := range []struct {
		file   string
		client *tls.Config
		want   string
	}{
		{base, client(nil, ""), "200 HTTP/2.0 100 "},
		{base + "http_server_config: {http2: false}", client(nil, ""), "200 HTTP/1.1 100 "},
		{base, &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}, refused},
		{base + "  min_version: TLS13\n", &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS12}, refused},
		{base + "  max_version: TLS12\n  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]\n  curve_preferences: [CurveP256, X25519]\n  prefer_server_cipher_suites: true", client(nil, ""), "200 HTTP/2.0 100 "},
		{verify, client(nil, ""), refused},
		{verify, client(other, "c"), refused},
		{verify, client(ca, "c"), "200 HTTP/2.0 100 "},
		{verify + "  client_allowed_sans: [d, c]\n", client(ca, "c"), "200 HTTP/2.0 100 "},
		{verify + "  client_allowed_sans: [d]\n", client(ca, "c"), refused},
		{verify + "  client_allowed_sans: ['127.0.0.1']\n", client(ca, "c"), "200 HTTP/2.0 100 "},
		{base + "  client_auth_type: RequireClientCert\n", client(other, "c"), "200 HTTP/2.0 100 "},
		{base + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.pem\n", client(nil, ""), "200 HTTP/2.0 100 "},
	} {
		address, _ := serve(t, write(t, dir, "web.yml", tt.file), nil)
		if got := get("https://"+address, tt.client, "", ""); tt.want != refused && got != tt.want || tt.want == refused && !strings.HasPrefix(got, "Get ") {
			t.Errorf("%s\n%s, want %s", tt.file, got, tt.want)
		}
	}
}

// TestNewCertificate replaces certificate and key one after the other.
func TestNewCertificate(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	cert, key := ca.issue(t, 100, "server")
	write(t, dir, "cert.pem", string(cert))
	write(t, dir, "key.pem", string(key))
	path := write(t, dir, "web.yml", "tls_server_config: {cert_file: cert.pem, key_file: key.pem}")
	var reports []string
	address, _ := serve(t, path, func(err error) { reports = append(reports, err.Error()) })
	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	check := func(want string) {
		t.Helper()
		if got := get("https://"+address, &tls.Config{RootCAs: roots}, "", ""); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	check("200 HTTP/2.0 100 ")
	cert, key = ca.issue(t, 101, "server")
	write(t, dir, "cert.pem", string(cert))
	check("200 HTTP/2.0 100 ")
	check("200 HTTP/2.0 100 ")
	write(t, dir, "key.pem", string(key))
	check("200 HTTP/2.0 101 ")
	write(t, dir, "web.yml", "")
	check("200 HTTP/2.0 101 ")
	if len(reports) != 2 || !strings.Contains(reports[0], "private key") || !strings.Contains(reports[1], "start again") {
		t.Errorf("%q", reports)
	}
}

func TestInvalidFiles(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t)
	cert, key := ca.issue(t, 1, "server")
	write(t, dir, "cert.pem", string(cert))
	write(t, dir, "key.pem", string(key))
	write(t, dir, "empty.pem", "")
	const base = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
	for text, want := range map[string]string{
		"a: [":                            "parse ",
		"unknown: 1":                      "line 1",
		"rate_limit: {}":                  "rate_limit",
		"basic_auth_users: {ann: secret}": "no bcrypt hash",
		"http_server_config: {headers: {Server: x}}":                                      "cannot be set",
		"http_server_config: {headers: {X-Frame-Options: x}}":                             "deny",
		"tls_server_config: {}":                                                           "cert_file",
		"tls_server_config: {cert_file: cert.pem}":                                        "key_file",
		"tls_server_config: {cert_file: none.pem, key_file: key.pem}":                     "none.pem",
		"tls_server_config: {cert_file: empty.pem, key_file: key.pem}":                    "empty",
		"tls_server_config: {cert_file: cert.pem, key_file: cert.pem}":                    "cert and key",
		base + "  cert: x\n":                                                              "both cert and cert_file",
		base + "  client_auth_type: x\n":                                                  "unknown",
		base + "  client_auth_type: RequireAndVerifyClientCert\n":                         "client_ca_file",
		base + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: key.pem\n": "no certificate",
		base + "  client_ca_file: cert.pem\n":                                             "client_auth_type",
		base + "  client_auth_type: RequireAnyClientCert\n  client_allowed_sans: [a]\n":   "verifies",
		base + "  min_version: SSL3\n":                                                    "TLS10",
		base + "  min_version: TLS13\n  max_version: TLS12\n":                             "above",
		base + "  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]\n":                            "insecure",
		base + "  curve_preferences: [x]\n":                                               "curve_preferences",
	} {
		path := write(t, dir, "web.yml", text)
		if err := Check(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %q", text, err, want)
		}
		if _, err := New(path, nil, nil); err == nil {
			t.Errorf("%s: accepted", text)
		}
	}
	if err := Check(filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing file was accepted")
	}
	if err := Check(write(t, dir, "web.yml", base)); err != nil {
		t.Error(err)
	}
}
