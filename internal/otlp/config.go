package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/push"
)

// Signal is a kind of data.
type Signal string

// The signals.
const (
	SignalMetrics  Signal = "metrics"
	SignalLogs     Signal = "logs"
	SignalProfiles Signal = "profiles"
)

// path returns the path of a signal below the common endpoint.
func (s Signal) path() string {
	if s == SignalProfiles {
		return "v1development/profiles" // not stable yet
	}
	return "v1/" + string(s)
}

// DefaultEndpoint is the endpoint that the specification defines for all signals.
const DefaultEndpoint = "http://localhost:4318"

// Config defines where and how one signal is sent.
type Config struct {
	// Endpoint is the whole URL, "" if none is configured.
	Endpoint string
	Header   http.Header
	Timeout  time.Duration
	Gzip     bool
	TLS      *tls.Config
	// MaxBytes is the limit of the queue, see [push.Options].
	MaxBytes int
	// Report receives errors, see [push.Options].
	Report func(error)
}

// Endpoint returns the URL for a signal below a common endpoint.
func Endpoint(common string, signal Signal) string {
	return strings.TrimSuffix(common, "/") + "/" + signal.path()
}

// FromEnvironment returns the configuration of a signal by the variables OTEL_EXPORTER_OTLP_ENDPOINT,
// _HEADERS, _TIMEOUT (ms), _COMPRESSION (gzip, which is the default, or none), _PROTOCOL
// (http/protobuf only), _CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY, and the same for one
// signal, which take precedence: OTEL_EXPORTER_OTLP_METRICS_ENDPOINT. getenv is like os.Getenv.
func FromEnvironment(signal Signal, getenv func(string) string) (Config, error) {
	c := Config{Timeout: 10 * time.Second, Gzip: true}
	var name string // of the variable that get returned last
	get := func(suffix string) string {
		name = "OTEL_EXPORTER_OTLP_" + strings.ToUpper(string(signal)) + "_" + suffix
		if v := strings.TrimSpace(getenv(name)); v != "" {
			return v
		}
		name = "OTEL_EXPORTER_OTLP_" + suffix
		return strings.TrimSpace(getenv(name))
	}
	fail := func(format string, args ...any) (Config, error) {
		return Config{}, fmt.Errorf("environment variable %s: %w", name, fmt.Errorf(format, args...))
	}

	if endpoint := get("ENDPOINT"); endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return fail("not like http://HOST:4318")
		}
		if c.Endpoint = endpoint; name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
			c.Endpoint = Endpoint(endpoint, signal)
		}
	}
	if protocol := get("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return fail("%q is not supported, only http/protobuf", protocol)
	}
	pairs, err := parsePairs(get("HEADERS"))
	if err != nil {
		return fail("%w", err)
	}
	c.Header = http.Header{}
	for _, p := range pairs {
		if !validHeader(p.key, p.text) {
			return fail("invalid header %q", p.key)
		}
		c.Header.Set(p.key, p.text)
	}
	if timeout := get("TIMEOUT"); timeout != "" {
		ms, err := strconv.ParseUint(timeout, 10, 31)
		if err != nil || ms == 0 {
			return fail("%q is not a number of milliseconds", timeout)
		}
		c.Timeout = time.Duration(ms) * time.Millisecond
	}
	switch compression := get("COMPRESSION"); compression {
	case "", "gzip":
	case "none":
		c.Gzip = false
	default:
		return fail("%q is neither gzip nor none", compression)
	}
	if c.TLS, err = tlsConfig(get("CERTIFICATE"), get("CLIENT_CERTIFICATE"), get("CLIENT_KEY")); err != nil {
		return Config{}, fmt.Errorf("environment variables OTEL_EXPORTER_OTLP_*CERTIFICATE, _CLIENT_KEY: %w", err)
	}
	return c, nil
}

func tlsConfig(ca, certificate, key string) (*tls.Config, error) {
	if ca == "" && certificate == "" && key == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", ca)
		}
	}
	if certificate != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// validHeader reports whether a header can be sent.
func validHeader(name, value string) bool {
	token := func(c rune) bool {
		return c > ' ' && c < 0x7f && !strings.ContainsRune("()<>@,;:\\\"/[]?={}", c)
	}
	return name != "" && strings.IndexFunc(name, func(c rune) bool { return !token(c) }) < 0 &&
		strings.IndexFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) < 0
}

// parsePairs parses KEY=VALUE,... with percent-encoded values.
func parsePairs(s string) (pairs []Attribute, err error) {
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || key == "" {
			return nil, fmt.Errorf("not like KEY=VALUE,KEY=VALUE")
		}
		if key, err = url.PathUnescape(key); err == nil {
			value, err = url.PathUnescape(value)
		}
		if err != nil {
			return nil, fmt.Errorf("value of %q is not percent-encoded: %w", key, err)
		}
		pairs = append(pairs, String(key, value))
	}
	return pairs, nil
}

// Resource returns the attributes of the sender: the given ones, of which those with an empty
// string are left out, and those of OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME, which take
// precedence. service.name is corescope unless it is set.
func Resource(getenv func(string) string, defaults ...Attribute) ([]Attribute, error) {
	all := slices.DeleteFunc(append([]Attribute{String("service.name", "corescope")}, defaults...), func(a Attribute) bool {
		return a.kind == kindString && a.text == ""
	})
	pairs, err := parsePairs(getenv("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		return nil, fmt.Errorf("environment variable OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if name := getenv("OTEL_SERVICE_NAME"); name != "" {
		pairs = append(pairs, String("service.name", name))
	}
	all = append(all, pairs...)
	// The last one of a name counts.
	var out []Attribute
	for i, a := range all {
		if !slices.ContainsFunc(all[i+1:], func(b Attribute) bool { return b.key == a.key }) {
			out = append(out, a)
		}
	}
	return out, nil
}

func (c *Config) sender() (*push.Sender, error) {
	return push.New(push.Options{
		URL: c.Endpoint, Header: c.Header, Gzip: c.Gzip, TLS: c.TLS, Timeout: c.Timeout,
		MaxBytes: c.MaxBytes, Rejected: rejected, Reason: statusText, Report: c.Report,
	})
}
