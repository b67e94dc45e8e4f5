package javagc

import (
	"strconv"

	"github.com/corescope/corescope/internal/value"
)

// what mirrors enum what.
type what uint8

const collection what = 0

func (w *what) name() string {
	switch bpfWhat(*w) {
	case bpfWhatCOLLECTION:
		return "collection"
	case bpfWhatPOOL:
		return "pool"
	}
	return strconv.Itoa(int(*w))
}

func (w *what) AppendText(b []byte) []byte { return append(b, w.name()...) }
func (w *what) AppendJSON(b []byte) []byte { return value.AppendString(b, w.name()) }
func (w *what) Any() any                   { return w.name() }
func (w *what) Schema() value.Schema       { return value.Schema{Type: "string"} }

// isFull reports whether the whole heap was collected. flag is the argument of the probe gc__begin, which
// is only reliable for explicitly requested collections: it is false for the collections of the whole heap
// that Serial and Parallel start when the young generation cannot be collected.
func isFull(manager string, flag bool) bool {
	switch manager {
	case "MarkSweepCompact", "PS MarkSweep", "G1 Old Generation", "ConcurrentMarkSweep":
		return true
	case "Copy", "ParNew", "PS Scavenge", "G1 Young Generation", "G1 Concurrent GC":
		return false
	}
	return flag
}
