// Package push sends requests over HTTP in the background, one after the other. It repeats requests
// that a server could not take, and keeps them in a queue of limited size meanwhile. The producer
// never waits: if the queue is full, the oldest requests are dropped. Everything is counted: what was
// passed to [Sender.Send] has been accepted, is lost or is in the queue ([Stats]).
package push

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// Options define where and how a [Sender] sends. Fields that are 0 have the default.
type Options struct {
	URL     string
	Header  http.Header // of each request
	Gzip    bool
	TLS     *tls.Config
	Timeout time.Duration // of one attempt; default 10 s
	// MaxBytes is the limit of the queue, including the request that is being sent. The default is
	// 8 MiB.
	MaxBytes int
	// Backoff is the time after the first failure; it doubles with each further one up to MaxBackoff.
	// The defaults are 1 s and 30 s. A random part of up to a half is subtracted.
	Backoff, MaxBackoff time.Duration
	// Rejected returns how many items the server did not accept although it answered with success,
	// and its reason.
	Rejected func(response []byte) (items uint64, reason string)
	// Reason returns the text of the response to a request that failed.
	Reason func(response []byte) string
	// Report receives errors: the first one after a success, and one for each request that was lost
	// because of the server's answer. It is called from one goroutine.
	Report func(error)
}

// Request is the body of a POST request.
type Request struct {
	Body        []byte
	ContentType string
	Query       url.Values // added to the URL
	Items       uint64     // that Stats counts
}

// Stats are the items since the start.
type Stats struct {
	// Accepted items were acknowledged. Lost items were dropped because the queue was full, were
	// refused, or remained at the end.
	Accepted, Lost uint64
	// Queued items are waiting, or being sent.
	Queued      uint64
	QueuedBytes int
	// Failures is the number of attempts that failed.
	Failures uint64
}

// Sender sends requests. It is safe for concurrent use.
type Sender struct {
	options Options
	client  *http.Client
	wake    chan bool // has a value if there may be work
	done    chan bool // is closed when the goroutine has ended
	ctx     context.Context
	cancel  context.CancelFunc

	mutex   sync.Mutex
	queue   []*Request // oldest first
	sending bool       // the first one of the queue is being sent
	closed  bool
	stats   Stats
}

// New starts a sender. It fails if the URL is invalid.
func New(o Options) (*Sender, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("parse URL: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("URL %q is not like http://HOST:PORT/PATH", u.Redacted())
	}
	defaults(&o.Timeout, 10*time.Second)
	defaults(&o.MaxBytes, 8<<20)
	defaults(&o.Backoff, time.Second)
	defaults(&o.MaxBackoff, 30*time.Second)
	if o.Report == nil {
		o.Report = func(error) {}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = o.TLS
	transport.MaxIdleConnsPerHost = 1
	s := &Sender{
		options: o, wake: make(chan bool, 1), done: make(chan bool),
		// A redirection could send the headers, which can have a password, to another host.
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.run()
	return s, nil
}

func defaults[T int | time.Duration](v *T, value T) {
	if *v <= 0 {
		*v = value
	}
}

// Send adds a request to the queue. It retains the body, and does not wait. The oldest requests that
// are not being sent are dropped if the queue is full.
func (s *Sender) Send(r Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed || len(r.Body) > s.options.MaxBytes {
		s.stats.Lost += r.Items
		return
	}
	first := 0
	if s.sending {
		first = 1
	}
	for s.stats.QueuedBytes+len(r.Body) > s.options.MaxBytes {
		if len(s.queue) == first {
			s.stats.Lost += r.Items // behind a request that is being sent, there is no place for it
			return
		}
		s.stats.Lost += s.remove(first).Items
	}
	s.queue = append(s.queue, &r)
	s.stats.Queued += r.Items
	s.stats.QueuedBytes += len(r.Body)
	select {
	case s.wake <- true:
	default:
	}
}

// remove removes a request from the queue.
func (s *Sender) remove(i int) *Request {
	r := s.queue[i]
	copy(s.queue[i:], s.queue[i+1:])
	s.queue[len(s.queue)-1] = nil
	s.queue = s.queue[:len(s.queue)-1]
	s.stats.Queued -= r.Items
	s.stats.QueuedBytes -= len(r.Body)
	return r
}

// Stats returns the counts.
func (s *Sender) Stats() Stats {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.stats
}

// Close sends what is in the queue until ctx is done, and counts the rest as lost. It waits until
// the sender has ended.
func (s *Sender) Close(ctx context.Context) error {
	s.mutex.Lock()
	if !s.closed {
		s.closed = true
		close(s.wake)
	}
	s.mutex.Unlock()
	var err error
	select {
	case <-s.done:
	case <-ctx.Done():
		s.cancel()
		<-s.done
		if lost := s.drop(); lost > 0 {
			err = fmt.Errorf("send to %s: %d items are lost: %w", s.options.URL, lost, ctx.Err())
		}
	}
	s.cancel()
	s.client.CloseIdleConnections()
	return err
}

// drop drops the queue.
func (s *Sender) drop() (lost uint64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for len(s.queue) > 0 {
		lost += s.remove(0).Items
	}
	s.stats.Lost += lost
	return lost
}

// run sends until the sender is closed and the queue is empty, or the context is done.
func (s *Sender) run() {
	defer close(s.done)
	var body compressor
	failures := 0 // in a row
	for s.ctx.Err() == nil {
		r := s.first()
		if r == nil {
			if _, ok := <-s.wake; !ok && s.first() == nil {
				return
			}
			continue
		}
		s.setSending(true)
		result := s.attempt(r, body.of(r, s.options.Gzip))
		s.finish(r, &result)
		if result.err == nil {
			failures = 0
			continue
		}
		if s.ctx.Err() != nil {
			return
		}
		if failures++; failures == 1 || !result.again {
			s.options.Report(fmt.Errorf("send to %s: %w", s.options.URL, result.err))
		}
		if result.again {
			s.pause(failures, result.after)
		}
	}
}

func (s *Sender) first() *Request {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	return s.queue[0]
}

func (s *Sender) setSending(sending bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.sending = sending
}

// finish counts the result of an attempt. A request to be repeated remains in the queue, from where
// it can be dropped in the meantime.
func (s *Sender) finish(r *Request, result *result) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.sending = false
	if result.err != nil {
		s.stats.Failures++
		if result.again {
			return
		}
	}
	s.remove(0)
	s.stats.Accepted += r.Items - result.rejected
	s.stats.Lost += result.rejected
}

// maxRetryAfter is the longest time that a server can ask to wait.
const maxRetryAfter = 10 * time.Minute

// pause waits before the next attempt: as long as the server asks for, else exponentially.
func (s *Sender) pause(failures int, after time.Duration) {
	wait := s.options.MaxBackoff
	if failures < 30 {
		wait = min(wait, s.options.Backoff<<(failures-1))
	}
	wait -= time.Duration(rand.Int64N(int64(wait)/2 + 1))
	timer := time.NewTimer(max(wait, min(after, maxRetryAfter)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	}
}

// result is the result of an attempt. If err is not nil, the request is to be sent again, after some
// time, or all of it is rejected.
type result struct {
	err      error
	again    bool
	after    time.Duration
	rejected uint64
}

// maxResponse is the part of a response that is read.
const maxResponse = 64 << 10

func (s *Sender) attempt(r *Request, body []byte) result {
	ctx, cancel := context.WithTimeout(s.ctx, s.options.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.options.URL, bytes.NewReader(body))
	if err != nil {
		return result{err: err, rejected: r.Items}
	}
	request.Header.Set("User-Agent", "corescope")
	for name, values := range s.options.Header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", r.ContentType)
	if s.options.Gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	if len(r.Query) > 0 {
		query := request.URL.Query()
		for name, values := range r.Query {
			query[name] = values
		}
		request.URL.RawQuery = query.Encode()
	}
	response, err := s.client.Do(request)
	if err != nil {
		var cause *url.Error // repeats the URL
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return result{err: err, again: true}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	switch code := response.StatusCode; {
	case code >= 200 && code < 300:
		if err != nil {
			text = nil // accepted all the same: the status says so
		}
		return s.accepted(r, text)
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		return result{err: s.failure(response.Status, text), again: true, after: retryAfter(response.Header.Get("Retry-After"), time.Now())}
	default:
		return result{err: s.failure(response.Status, text), rejected: r.Items}
	}
}

func (s *Sender) accepted(r *Request, text []byte) result {
	if s.options.Rejected != nil {
		if n, reason := s.options.Rejected(text); n > 0 {
			n = min(n, r.Items)
			s.options.Report(fmt.Errorf("send to %s: %d of %d items were rejected: %.200q", s.options.URL, n, r.Items, reason))
			return result{rejected: n}
		}
	}
	return result{}
}

func (s *Sender) failure(status string, text []byte) error {
	reason := string(text)
	if s.options.Reason != nil {
		reason = s.options.Reason(text)
	}
	if reason == "" {
		return errors.New(status)
	}
	return fmt.Errorf("%s: %.200q", status, reason)
}

// retryAfter returns the value of the header, in seconds or as a date, or 0.
func retryAfter(header string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(header, 10, 32); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(header); err == nil {
		return t.Sub(now)
	}
	return 0
}

// compressor compresses the body of a request once for all attempts.
type compressor struct {
	request *Request
	buffer  bytes.Buffer
	writer  *gzip.Writer
}

func (c *compressor) of(r *Request, compress bool) []byte {
	if !compress {
		return r.Body
	}
	if c.request == r {
		return c.buffer.Bytes()
	}
	c.request = r
	if c.buffer.Reset(); c.writer == nil {
		c.writer, _ = gzip.NewWriterLevel(&c.buffer, gzip.BestSpeed) // the level is valid
	} else {
		c.writer.Reset(&c.buffer)
	}
	_, _ = c.writer.Write(r.Body) // a write to memory does not fail
	_ = c.writer.Close()
	return c.buffer.Bytes()
}
