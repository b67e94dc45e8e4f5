// Package webconfig serves HTTP with TLS, client certificates and basic authentication as a file
// defines, in the format of Prometheus's exporters (exporter-toolkit, docs/web-configuration.md). The
// file, the certificates and the users are read again when they change.
//
// exporter-toolkit itself would add 18 modules and 3.5 MB, among them clients for OAuth, vsock and
// systemd.
package webconfig

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/bcrypt"
)

// file is the content of the file.
type file struct {
	TLS   *tlsSection       `yaml:"tls_server_config"`
	HTTP  httpSection       `yaml:"http_server_config"`
	Users map[string]string `yaml:"basic_auth_users"` // name: bcrypt hash
}

type tlsSection struct {
	Cert           string   `yaml:"cert"`
	CertFile       string   `yaml:"cert_file"`
	Key            string   `yaml:"key"`
	KeyFile        string   `yaml:"key_file"`
	ClientAuthType string   `yaml:"client_auth_type"`
	ClientCA       string   `yaml:"client_ca"`
	ClientCAFile   string   `yaml:"client_ca_file"`
	ClientSANs     []string `yaml:"client_allowed_sans"`
	MinVersion     string   `yaml:"min_version"`
	MaxVersion     string   `yaml:"max_version"`
	CipherSuites   []string `yaml:"cipher_suites"`
	Curves         []string `yaml:"curve_preferences"`
	// PreferServer has no effect in Go's TLS.
	PreferServer bool `yaml:"prefer_server_cipher_suites"`
}

type httpSection struct {
	HTTP2   *bool             `yaml:"http2"` // default true
	Headers map[string]string `yaml:"headers"`
}

// state is a configuration that has been read.
type state struct {
	tls     *tls.Config // nil without TLS
	http2   bool
	headers map[string]string
	users   map[string]string
	stamps  map[string]stamp // of all files that have been read
}

// stamp tells whether a file has changed.
type stamp struct {
	size     int64
	modified int64
	info     os.FileInfo
}

func (s stamp) equal(other stamp) bool {
	return s.size == other.size && s.modified == other.modified && os.SameFile(s.info, other.info)
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.Size(), info.ModTime().UnixNano(), info}, nil
}

// changed reports whether one of the files differs from what has been read.
func (s *state) changed() bool {
	for path, old := range s.stamps {
		if now, err := stampOf(path); err != nil || !now.equal(old) {
			return true
		}
	}
	return false
}

// Check reports what is wrong with a file and the files that it names.
func Check(path string) error {
	_, err := load(path)
	return err
}

// load reads a file and all files that it names.
func load(path string) (*state, error) {
	s := &state{stamps: map[string]stamp{}}
	text, err := s.read(path)
	if err != nil {
		return nil, err
	}
	var f file
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	s.http2, s.headers, s.users = f.HTTP.HTTP2 == nil || *f.HTTP.HTTP2, f.HTTP.Headers, f.Users
	if err := s.check(&f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.TLS != nil {
		if s.tls, err = s.tlsConfig(f.TLS, filepath.Dir(path)); err != nil {
			return nil, fmt.Errorf("%s: tls_server_config: %w", path, err)
		}
	}
	return s, nil
}

// read reads a file and notes its state before.
func (s *state) read(path string) ([]byte, error) {
	stamp, err := stampOf(path)
	if err != nil {
		return nil, err
	}
	s.stamps[path] = stamp
	return os.ReadFile(path)
}

// allowedHeaders are the headers that can be set, and their values if they are limited.
func allowedHeaders() map[string][]string {
	return map[string][]string{
		"Content-Security-Policy": nil, "Strict-Transport-Security": nil, "X-XSS-Protection": nil,
		"X-Content-Type-Options": {"nosniff"}, "X-Frame-Options": {"deny", "sameorigin"},
	}
}

func (s *state) check(f *file) error {
	for name, value := range f.HTTP.Headers {
		values, ok := allowedHeaders()[name]
		if !ok {
			return fmt.Errorf("http_server_config: header %q cannot be set", name)
		}
		if values != nil && !slices.Contains(values, value) {
			return fmt.Errorf("http_server_config: header %q has one of the values %q", name, values)
		}
	}
	for name, hash := range f.Users {
		if _, err := bcrypt.Cost([]byte(hash)); err != nil {
			return fmt.Errorf("basic_auth_users: password of %q is no bcrypt hash: %w", name, err)
		}
	}
	return nil
}

// content returns the text itself, or that of the file, whose path can be relative to dir.
func (s *state) content(key, text, path, dir string) ([]byte, error) {
	switch {
	case text != "" && path != "":
		return nil, fmt.Errorf("both %s and %s_file are set", key, key)
	case path == "":
		return []byte(text), nil
	case !filepath.IsAbs(path):
		path = filepath.Join(dir, path)
	}
	b, err := s.read(path)
	if err != nil {
		return nil, fmt.Errorf("read %s_file: %w", key, err)
	}
	return b, nil
}

func (s *state) tlsConfig(t *tlsSection, dir string) (*tls.Config, error) {
	cert, err := s.content("cert", t.Cert, t.CertFile, dir)
	if err != nil {
		return nil, err
	}
	key, err := s.content("key", t.Key, t.KeyFile, dir)
	if err != nil {
		return nil, err
	}
	ca, err := s.content("client_ca", t.ClientCA, t.ClientCAFile, dir)
	if err != nil {
		return nil, err
	}
	if len(cert) == 0 || len(key) == 0 {
		return nil, errors.New("cert_file and key_file are needed, and must not be empty")
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("cert and key: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if s.http2 {
		c.NextProtos = []string{"h2", "http/1.1"}
	}
	if err := setClients(c, t, ca); err != nil {
		return nil, err
	}
	return c, setAlgorithms(c, t)
}

// setClients sets which certificates clients must have.
func setClients(c *tls.Config, t *tlsSection, ca []byte) error {
	types := map[string]tls.ClientAuthType{
		"": tls.NoClientCert, "NoClientCert": tls.NoClientCert, "RequestClientCert": tls.RequestClientCert,
		// The second name is an old one of the first.
		"RequireAnyClientCert": tls.RequireAnyClientCert, "RequireClientCert": tls.RequireAnyClientCert,
		"VerifyClientCertIfGiven": tls.VerifyClientCertIfGiven, "RequireAndVerifyClientCert": tls.RequireAndVerifyClientCert,
	}
	var ok bool
	if c.ClientAuth, ok = types[t.ClientAuthType]; !ok {
		return fmt.Errorf("client_auth_type %q is unknown", t.ClientAuthType)
	}
	verified := c.ClientAuth >= tls.VerifyClientCertIfGiven
	if len(ca) > 0 {
		if c.ClientAuth == tls.NoClientCert {
			return errors.New("client_ca_file has no effect without client_auth_type")
		}
		if c.ClientCAs = x509.NewCertPool(); !c.ClientCAs.AppendCertsFromPEM(ca) {
			return errors.New("client_ca_file has no certificate")
		}
	} else if verified {
		return fmt.Errorf("client_auth_type %s needs client_ca_file", t.ClientAuthType)
	}
	if t.ClientSANs != nil {
		if !verified {
			return errors.New("client_allowed_sans needs a client_auth_type that verifies certificates")
		}
		// Unlike VerifyPeerCertificate, this is called for resumed sessions too.
		c.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) > 0 && !hasName(state.PeerCertificates[0], t.ClientSANs) {
				return errors.New("certificate of the client has no name of client_allowed_sans")
			}
			return nil
		}
	}
	return nil
}

// hasName reports whether a certificate has one of the names as subject alternative name.
func hasName(c *x509.Certificate, names []string) bool {
	all := append(slices.Clone(c.DNSNames), c.EmailAddresses...)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	for _, u := range c.URIs {
		all = append(all, u.String())
	}
	return slices.ContainsFunc(all, func(name string) bool { return slices.Contains(names, name) })
}

// setAlgorithms sets versions, ciphers and curves by their names.
func setAlgorithms(c *tls.Config, t *tlsSection) error {
	versions := map[string]uint16{"TLS10": tls.VersionTLS10, "TLS11": tls.VersionTLS11, "TLS12": tls.VersionTLS12, "TLS13": tls.VersionTLS13}
	c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS13
	for _, v := range []struct {
		key, name string
		to        *uint16
	}{{"min_version", t.MinVersion, &c.MinVersion}, {"max_version", t.MaxVersion, &c.MaxVersion}} {
		if v.name == "" {
			continue
		}
		var ok bool
		if *v.to, ok = versions[v.name]; !ok {
			return fmt.Errorf("%s %q is not TLS10, TLS11, TLS12 or TLS13", v.key, v.name)
		}
	}
	if c.MinVersion > c.MaxVersion {
		return errors.New("min_version is above max_version")
	}
	suites := tls.CipherSuites()
	for _, name := range t.CipherSuites {
		i := slices.IndexFunc(suites, func(s *tls.CipherSuite) bool { return s.Name == name })
		if i < 0 {
			return fmt.Errorf("cipher_suites: %q is unknown or insecure", name)
		}
		c.CipherSuites = append(c.CipherSuites, suites[i].ID)
	}
	curves := map[string]tls.CurveID{"CurveP256": tls.CurveP256, "CurveP384": tls.CurveP384, "CurveP521": tls.CurveP521, "X25519": tls.X25519}
	for _, name := range t.Curves {
		id, ok := curves[name]
		if !ok {
			return fmt.Errorf("curve_preferences: %q is unknown", name)
		}
		c.CurvePreferences = append(c.CurvePreferences, id)
	}
	return nil
}
