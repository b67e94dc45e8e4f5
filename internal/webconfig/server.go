package webconfig

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// Server is an HTTP server with the configuration of a file.
type Server struct {
	http   *http.Server
	path   string // "" for plain HTTP
	next   http.Handler
	report func(error)

	mutex   sync.Mutex
	current *state
	failed  string // the error of the last attempt to read the file again

	guard guard
}

// New returns a server. It fails if the file or a file that it names is invalid. Without a path, it is
// plain HTTP. report receives errors of later changes of the file; the previous configuration then
// remains in use.
func New(path string, handler http.Handler, report func(error)) (*Server, error) {
	s := &Server{path: path, next: handler, report: report, guard: newGuard(time.Second)}
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: time.Minute, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
		// Errors of clients, such as those of handshakes, are no errors of ours.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	if path == "" {
		return s, nil
	}
	var err error
	if s.current, err = load(path); err != nil {
		return nil, err
	}
	if s.current.tls != nil {
		s.http.TLSConfig = &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: s.current.tls.NextProtos,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.state().tls, nil },
		}
		if !s.current.http2 {
			s.http.Protocols = new(http.Protocols)
			s.http.Protocols.SetHTTP1(true)
		}
	}
	return s, nil
}

// Serve accepts connections until [Server.Close]. It then returns nil.
func (s *Server) Serve(l net.Listener) error {
	var err error
	if s.http.TLSConfig != nil {
		err = s.http.ServeTLS(l, "", "")
	} else {
		err = s.http.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close closes all listeners and connections.
func (s *Server) Close() error { return s.http.Close() }

// state returns the configuration, which is read again if files have changed. If that fails, perhaps
// because only some of the files have been replaced, the previous one remains in use.
func (s *Server) state() *state {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.path == "" || !s.current.changed() {
		return s.current
	}
	now, err := load(s.path)
	if err == nil && ((now.tls == nil) != (s.current.tls == nil) || now.http2 != s.current.http2) {
		err = errors.New(s.path + ": to enable or disable TLS or HTTP/2, start again")
	}
	if err != nil {
		if s.failed != err.Error() && s.report != nil {
			s.report(err)
		}
		s.failed = err.Error()
		return s.current
	}
	s.current, s.failed = now, ""
	return now
}

// ServeHTTP sets the headers, authenticates the user, and passes the request on.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if state := s.state(); state != nil {
		for name, value := range state.headers {
			w.Header().Set(name, value)
		}
		if len(state.users) > 0 {
			switch user, password, _ := r.BasicAuth(); s.guard.check(state.users, user, password) {
			case denied:
				w.Header().Set("WWW-Authenticate", `Basic realm="corescope", charset="UTF-8"`)
				http.Error(w, "user name and password are required", http.StatusUnauthorized)
				return
			case busy:
				w.Header().Set("Retry-After", "5")
				http.Error(w, "too many attempts to log in", http.StatusTooManyRequests)
				return
			}
		}
	}
	s.next.ServeHTTP(w, r)
}

// guard checks passwords. A check takes some 60 ms of CPU time on purpose, so passwords that were
// right are remembered, others are checked one at a time, and after a wrong one there is a pause.
// Whoever tries passwords thus takes little CPU time, and delays only others that log in for the
// first time.
type guard struct {
	pause   time.Duration
	waiting chan bool // as many as may wait

	checking sync.Mutex
	mutex    sync.Mutex
	right    map[[sha256.Size]byte]bool
}

const (
	maxWaiting = 8
	maxRight   = 100
)

func newGuard(pause time.Duration) guard {
	return guard{pause: pause, waiting: make(chan bool, maxWaiting), right: map[[sha256.Size]byte]bool{}}
}

type verdict int

const (
	allowed verdict = iota
	denied
	busy
)

func (g *guard) check(users map[string]string, user, password string) verdict {
	if user == "" && password == "" {
		return denied
	}
	hash, known := users[user]
	key := sha256.Sum256([]byte(user + "\x00" + hash + "\x00" + password))
	if known && g.remembers(key) {
		return allowed
	}
	select {
	case g.waiting <- true:
		defer func() { <-g.waiting }()
	default:
		return busy
	}
	g.checking.Lock()
	defer g.checking.Unlock()
	if known && g.remembers(key) {
		return allowed
	}
	if !known { // takes as long as for a known one, so the answer does not tell whether it exists
		for _, hash = range users {
			break
		}
	}
	if err := bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)); err != nil || !known {
		time.Sleep(g.pause)
		return denied
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if len(g.right) >= maxRight { // of users and passwords that were replaced
		clear(g.right)
	}
	g.right[key] = true
	return allowed
}

func (g *guard) remembers(key [sha256.Size]byte) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.right[key]
}
