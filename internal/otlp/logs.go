package otlp

import (
	"context"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/corescope/corescope/internal/push"
)

const contentType = "application/x-protobuf"

// maxRequest is the size of a request in bytes at which the next one begins. Many servers refuse
// requests of 4 MiB.
const maxRequest = 512 << 10

// maxDelay is how long a record waits for others.
const maxDelay = time.Second

func formatUint(v uint64) string { return strconv.FormatUint(v, 10) }

// Record is an event. Nothing of it is retained.
type Record struct {
	Event          string // such as corescope.execsnoop
	Time, Observed time.Time
	Body           string // text for people; optional
	Attributes     []Attribute
}

// Logs sends records of events. It is safe for concurrent use.
type Logs struct {
	sender   *push.Sender
	envelope envelope
	timer    *time.Timer

	mutex   sync.Mutex
	encoder encoder
	record  []byte // the current one
	pending []byte // records of the next request, as fields
	items   uint64
	lost    uint64 // records that came after Close
	closed  bool
}

// NewLogs starts to send.
func NewLogs(c Config, resource []Attribute, version string) (*Logs, error) {
	sender, err := c.sender()
	if err != nil {
		return nil, err
	}
	l := &Logs{sender: sender, envelope: newEnvelope(resource, version)}
	l.timer = time.AfterFunc(maxDelay, l.Flush)
	return l, nil
}

// The fields of LogRecord.
const (
	logTime       = 1
	logBody       = 5
	logAttributes = 6
	logObserved   = 11
	logEvent      = 12
)

// Emit sends a record. It never waits for the network.
func (l *Logs) Emit(r *Record) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.closed {
		l.lost++
		return
	}
	l.record = appendFixed64(l.record[:0], logTime, uint64(r.Time.UnixNano()))
	if r.Body != "" {
		l.encoder.value = appendString(l.encoder.value[:0], fieldString, toValid(r.Body, false))
		l.record = appendMessage(l.record, logBody, l.encoder.value)
	}
	for i := range r.Attributes {
		l.record = l.encoder.attribute(l.record, logAttributes, &r.Attributes[i])
	}
	l.record = appendFixed64(l.record, logObserved, uint64(r.Observed.UnixNano()))
	l.record = appendString(l.record, logEvent, r.Event)
	if len(l.pending) > 0 && len(l.pending)+len(l.record) > maxRequest {
		l.flush()
	}
	if len(l.pending) == 0 {
		l.timer.Reset(maxDelay)
	}
	l.pending = protowire.AppendTag(l.pending, fieldRecords, protowire.BytesType)
	l.pending = protowire.AppendBytes(l.pending, l.record)
	l.items++
}

// Flush sends the records that wait for others.
func (l *Logs) Flush() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.flush()
}

func (l *Logs) flush() {
	if l.items > 0 {
		l.sender.Send(push.Request{Body: l.envelope.wrap(l.pending), ContentType: contentType, Items: l.items})
	}
	l.pending, l.items = l.pending[:0], 0
}

// Stats returns the counts of records.
func (l *Logs) Stats() push.Stats {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	s := l.sender.Stats()
	s.Queued += l.items
	s.QueuedBytes += len(l.pending)
	s.Lost += l.lost
	return s
}

// Close sends what is waiting, see [push.Sender.Close].
func (l *Logs) Close(ctx context.Context) error {
	l.mutex.Lock()
	l.flush()
	l.closed = true
	l.timer.Stop()
	l.mutex.Unlock()
	return l.sender.Close(ctx)
}
