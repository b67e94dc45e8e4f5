package stacktrace

import (
	"testing"
	"time"

	"github.com/corescope/corescope/internal/value"
)

// TestAwait checks that a stack that has been received is awaited however long it takes to symbolize,
// and that one that has not been received is not.
func TestAwait(t *testing.T) {
	const id, lost = 1, 2
	traces := &Traces{Cache: newTraceCache(cachedTraces)}
	traces.received.Add(1)
	ended := make(chan bool)
	go func() {
		traces.Await(map[StackID]bool{id: true, lost: true})
		close(ended)
	}()
	select {
	case <-ended:
		t.Fatal("it does not wait until the stack is symbolized")
	case <-time.After(time.Second):
	}
	traces.Cache.put(id, value.Stack{{Symbol: "f"}})
	traces.symbolized.Add(1)
	<-ended
}
