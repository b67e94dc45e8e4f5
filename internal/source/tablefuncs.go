package source

import (
	"iter"
	"unsafe"
)

// Functions of a Table that few tools have. Their types convert them for the part of Table that
// does not depend on its types, so that the binary contains the conversions only for these tools.

// Poll yields counters that the kernel maintains. PollWith returns one.
type Poll[K, V any] struct {
	read func(yield func(key, value unsafe.Pointer)) error
}

// PollWith returns a Poll that calls read. Its error ends the run.
func PollWith[K, V any](read func(yield func(K, V)) error) Poll[K, V] {
	return Poll[K, V]{func(yield func(key, value unsafe.Pointer)) error {
		return read(func(k K, v V) { yield(unsafe.Pointer(&k), unsafe.Pointer(&v)) })
	}}
}

// Missing returns the counts for samples that were not taken. MissingWith returns one.
type Missing[K, V any] struct {
	counts func(missing) (key, value unsafe.Pointer)
}

// MissingWith returns a Missing that calls counts, with the numbers of samples of a CPU that were due
// while it was idle, and of those that are lost.
func MissingWith[K, V any](counts func(cpu uint32, idle, missed uint64) (K, V)) Missing[K, V] {
	return Missing[K, V]{func(m missing) (key, value unsafe.Pointer) {
		k, v := counts(m.cpu, m.idle, m.missed)
		return unsafe.Pointer(&k), unsafe.Pointer(&v)
	}}
}

// Index returns the key of an index. IndexWith returns one.
type Index[K any] struct {
	key func(uint32) unsafe.Pointer
}

// IndexWith returns an Index that calls key.
func IndexWith[K any](key func(uint32) K) Index[K] {
	return Index[K]{func(i uint32) unsafe.Pointer {
		k := key(i)
		return unsafe.Pointer(&k)
	}}
}

// Survey reads all rows of a report. SurveyWith returns one.
type Survey[R comparable, V any] struct {
	read func(sums)
}

// SurveyWith returns a Survey that calls read, with copies of the rows.
func SurveyWith[R comparable, V any](read func(iter.Seq2[*R, *V])) Survey[R, V] {
	return Survey[R, V]{func(all sums) {
		read(func(yield func(*R, *V) bool) {
			for row, v := range all {
				r := row.(R)
				if !yield(&r, (*V)(v)) {
					return
				}
			}
		})
	}}
}
