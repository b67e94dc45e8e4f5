package push

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// backend is a server that fails in several ways. It counts the items of requests that it accepts:
// each body has the number of its request and of its items.
type backend struct {
	mutex    sync.Mutex
	faults   func() string // "" accepts
	items    map[uint64]uint64
	repeated int       // accepted again
	stall    chan bool // closed: requests that stall end
	stalled  chan bool // has a value if a request stalled
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" && err == nil {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	if err != nil || len(body) < 16 {
		w.WriteHeader(500)
		return
	}
	b.mutex.Lock()
	fault := b.faults()
	b.mutex.Unlock()
	switch fault {
	case "drop":
		panic(http.ErrAbortHandler)
	case "stall":
		select {
		case b.stalled <- true:
		default:
		}
		select {
		case <-r.Context().Done():
		case <-b.stall:
		}
		return
	case "429":
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(429)
		return
	case "503":
		w.WriteHeader(503)
		return
	case "400":
		http.Error(w, "not understood", 400)
		return
	case "partial":
		b.accept(body, 1)
		fmt.Fprint(w, "1")
		return
	}
	b.accept(body, 0)
}

func (b *backend) accept(body []byte, rejected uint64) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	id := binary.LittleEndian.Uint64(body)
	if _, ok := b.items[id]; ok {
		b.repeated++
	}
	b.items[id] = binary.LittleEndian.Uint64(body[8:]) - rejected
}

func (b *backend) accepted() (sum uint64) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, n := range b.items {
		sum += n
	}
	return sum
}

func newBackend(faults func() string) *backend {
	return &backend{faults: faults, items: map[uint64]uint64{}, stall: make(chan bool), stalled: make(chan bool, 1)}
}

func request(id, items uint64, size int) Request {
	body := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, id), items)
	return Request{Body: append(body, make([]byte, size)...), ContentType: "application/x-test", Items: items}
}

func rejected(response []byte) (uint64, string) {
	if string(response) == "1" {
		return 1, "too old"
	}
	return 0, ""
}

// quick returns options with short times.
func quick(url string) Options {
	return Options{URL: url, Gzip: true, Timeout: 50 * time.Millisecond, Backoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond, Rejected: rejected}
}

func start(t *testing.T, o Options) *Sender {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// finish waits until the queue is empty.
func finish(t *testing.T, s *Sender) Stats {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	return s.Stats()
}

// TestNothingIsMissing sends to a backend that stalls, drops connections, answers 429, 503, 400 and
// partial success, and is restarted: all items are accepted or lost.
func TestNothingIsMissing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	faults := []string{"drop", "stall", "429", "503", "400", "partial"}
	failed := uint64(0)
	b := newBackend(func() string {
		if n := r.IntN(20); n < len(faults) {
			if faults[n] != "partial" {
				failed++
			}
			return faults[n]
		}
		return ""
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	server := &http.Server{Handler: b}
	go server.Serve(listener)
	s := start(t, quick("http://"+address))
	produced := uint64(0)
	for i := range 300 {
		n := uint64(1 + i%7)
		s.Send(request(uint64(i), n, 1000))
		produced += n
		if i%50 == 49 { // restart, with a while in which nobody listens
			shutdown(t, server, listener)
			s.Send(request(uint64(1000+i), 1, 10))
			produced++
			if listener, err = net.Listen("tcp", address); err != nil {
				t.Fatal(err)
			}
			server = &http.Server{Handler: b}
			go server.Serve(listener)
		}
		if stats := s.Stats(); stats.Accepted+stats.Lost+stats.Queued != produced {
			t.Fatalf("%+v, but %d items were produced", stats, produced)
		}
	}
	stats := finish(t, s)
	shutdown(t, server, listener)
	t.Logf("%d produced: %+v, %d requests repeated after a restart", produced, stats, b.repeated)
	if stats.Accepted+stats.Lost != produced || stats.Queued != 0 || stats.QueuedBytes != 0 {
		t.Errorf("%d items were produced: %+v", produced, stats)
	}
	// The backend can have accepted more than the sender knows only if a response did not arrive: the
	// failures that are no faults of the backend, such as a time-out on a slow machine.
	if got, others := b.accepted(), stats.Failures-failed; got < stats.Accepted || got > stats.Accepted+7*others {
		t.Errorf("the backend has %d items, the sender counts %d, %d failures without fault", got, stats.Accepted, others)
	}
	if stats.Lost == 0 || stats.Failures == 0 || stats.Accepted < produced/2 {
		t.Errorf("the backend did not fail as intended: %+v", stats)
	}
}

// shutdown closes a server when it has answered.
func shutdown(t *testing.T, server *http.Server, listener net.Listener) {
	t.Helper()
	listener.Close() // the server may not have begun to use it
	if err := server.Shutdown(context.Background()); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// TestFullQueue checks that the oldest requests are dropped, that producers do not wait for a
// backend that stalls, and that the queue has its limit.
func TestFullQueue(t *testing.T) {
	mode := "stall"
	b := newBackend(func() string { return mode })
	server := httptest.NewServer(b)
	defer server.Close()
	o := quick(server.URL)
	o.MaxBytes, o.Timeout = 10_000, time.Hour
	s := start(t, o)
	s.Send(request(0, 1, 984))
	<-b.stalled
	for i := range uint64(99) {
		s.Send(request(1+i, 1, 984))
		if stats := s.Stats(); stats.QueuedBytes > 10_000 {
			t.Fatalf("%d bytes", stats.QueuedBytes)
		}
	}
	s.Send(request(200, 5, 20_000)) // too large
	if stats := s.Stats(); stats.Queued != 10 || stats.Lost != 95 || stats.Accepted != 0 {
		t.Errorf("%+v, want 10 of 105 items in the queue", stats)
	}
	b.mutex.Lock()
	mode = ""
	b.mutex.Unlock()
	close(b.stall) // answers 200 without accepting the first one
	stats := finish(t, s)
	if stats.Accepted != 10 || stats.Lost != 95 {
		t.Errorf("%+v", stats)
	}
	for id := range uint64(200) {
		if _, ok := b.items[id]; ok != (id >= 91 && id < 100) {
			t.Errorf("request %d accepted: %v", id, ok)
		}
	}
}

// TestPlaceBehindARequest checks that a request that does not fit beside the one being sent is lost.
func TestPlaceBehindARequest(t *testing.T) {
	s := &Sender{options: Options{MaxBytes: 100}, wake: make(chan bool, 1)}
	s.Send(request(1, 1, 60))
	s.sending = true
	s.Send(request(2, 2, 60))
	if s.stats.Lost != 2 || s.stats.Queued != 1 {
		t.Errorf("%+v", s.stats)
	}
	s.sending = false
	s.Send(request(3, 3, 60))
	if s.stats.Lost != 3 || s.stats.Queued != 3 || s.stats.QueuedBytes != 76 {
		t.Errorf("%+v", s.stats)
	}
}

// TestClose checks that what remains at the end is lost, that Close ends in time and that nothing
// is accepted afterwards.
func TestClose(t *testing.T) {
	b := newBackend(func() string { return "stall" })
	server := httptest.NewServer(b)
	defer server.Close()
	for _, timeout := range []time.Duration{time.Hour, time.Millisecond} {
		o := quick(server.URL)
		o.Timeout, o.MaxBackoff, o.Backoff = timeout, time.Hour, time.Hour
		s := start(t, o)
		s.Send(request(1, 3, 0))
		s.Send(request(2, 4, 0))
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		err := s.Close(ctx)
		cancel()
		if stats := s.Stats(); err == nil || !strings.Contains(err.Error(), "7 items are lost") || stats.Lost != 7 || stats.Queued != 0 {
			t.Errorf("%v, %+v", err, stats)
		}
		s.Send(request(3, 5, 0))
		if stats := s.Stats(); stats.Lost != 12 {
			t.Errorf("%+v", stats)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func TestRequest(t *testing.T) {
	got := make(chan *http.Request, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }))
	defer server.Close()
	s := start(t, Options{URL: server.URL + "/ingest?tenant=a", Header: http.Header{"Authorization": {"Basic x"}}})
	s.Send(Request{Body: []byte("x"), ContentType: "text/x", Query: url.Values{"name": {"a b&c"}}})
	r := <-got
	if r.Method != "POST" || r.URL.String() != "/ingest?name=a+b%26c&tenant=a" || r.Header.Get("Authorization") != "Basic x" ||
		r.Header.Get("Content-Type") != "text/x" || r.Header.Get("User-Agent") != "corescope" || r.Header.Get("Content-Encoding") != "" {
		t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
	}
	finish(t, s)
}

// TestRedirection checks that headers do not leave the server.
func TestRedirection(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("request %v", r.Header) }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	s := start(t, quick(server.URL))
	s.Send(request(1, 2, 0))
	if stats := finish(t, s); stats.Lost != 2 {
		t.Errorf("%+v", stats)
	}
}

func TestReports(t *testing.T) {
	answers := []string{"503", "503", "", "400", "429", "", "partial"}
	b := newBackend(nil)
	b.faults = func() string {
		answer := answers[0]
		answers = answers[1:]
		return answer
	}
	server := httptest.NewServer(b)
	defer server.Close()
	var reports []string
	o := quick(server.URL)
	o.Report = func(err error) {
		reports = append(reports, strings.TrimPrefix(err.Error(), "send to "+server.URL+": "))
	}
	s := start(t, o)
	for i := range uint64(4) {
		s.Send(request(i, 2, 0))
	}
	stats := finish(t, s)
	want := []string{"503 Service Unavailable", `400 Bad Request: "not understood\n"`, `1 of 2 items were rejected: "too old"`}
	if fmt.Sprint(reports) != fmt.Sprint(want) || stats.Accepted != 5 || stats.Lost != 3 || stats.Failures != 4 {
		t.Errorf("%q, %+v", reports, stats)
	}
}

func TestRetryAfter(t *testing.T) {
	var times []time.Time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if times = append(times, time.Now()); len(times) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
		}
	}))
	defer server.Close()
	s := start(t, quick(server.URL))
	s.Send(request(1, 1, 0))
	finish(t, s)
	if len(times) != 2 || times[1].Sub(times[0]) < time.Second {
		t.Errorf("attempts at %v", times)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "x": 0, "-1": 0, "7": 7 * time.Second, "Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "99999999999999999999": 0,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}

func TestPauses(t *testing.T) {
	s := &Sender{options: Options{Backoff: 4 * time.Millisecond, MaxBackoff: 20 * time.Millisecond}}
	ctx, cancel := context.WithCancel(context.Background())
	s.ctx = ctx
	for failures, longest := range map[int]time.Duration{1: 4, 2: 8, 3: 16, 4: 20, 100: 20} {
		begin := time.Now()
		s.pause(failures, 0)
		if d := time.Since(begin); d < longest*time.Millisecond/2 {
			t.Errorf("%v after %d failures", d, failures)
		}
	}
	cancel()
	s.pause(1, time.Hour) // ends at once
}

func TestInvalidURL(t *testing.T) {
	for _, u := range []string{"", "localhost:4318", "ftp://x/", "http://", "http://\x00", "unix:///x"} {
		if _, err := New(Options{URL: u}); err == nil {
			t.Errorf("%q was accepted", u)
		}
	}
}

func TestConcurrentSend(t *testing.T) {
	b := newBackend(func() string { return "" })
	server := httptest.NewServer(b)
	defer server.Close()
	o := quick(server.URL)
	o.MaxBytes, o.Timeout = 5000, time.Minute
	s := start(t, o)
	var group sync.WaitGroup
	for worker := range uint64(4) {
		group.Go(func() {
			for i := range uint64(500) {
				s.Send(request(worker*1000+i, 1, 100))
				s.Stats()
			}
		})
	}
	group.Wait()
	stats := finish(t, s)
	if stats.Accepted+stats.Lost != 2000 || b.accepted() != stats.Accepted || stats.Accepted == 0 {
		t.Errorf("%+v, the backend has %d", stats, b.accepted())
	}
}
