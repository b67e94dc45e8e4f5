package ring

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// event returns a sample with a time and a number to identify it.
func event(t, n uint64) []byte {
	return binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, t), n)
}

func timeOf(data []byte) uint64 { return binary.NativeEndian.Uint64(data) }

func numberOf(data []byte) uint64 { return binary.NativeEndian.Uint64(data[8:]) }

// drain returns the times of the samples that are ready.
func drain(q *queue) []uint64 {
	var out []uint64
	for data := q.next(); data != nil; data = q.next() {
		out = append(out, timeOf(data))
	}
	return out
}

func TestQueue(t *testing.T) {
	var q queue
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	for _, step := range []struct {
		add     []uint64 // event times of samples that are read at ms
		ms      int
		release int // samples that were read until then are released
		want    string
	}{
		{[]uint64{30, 10}, 0, -1, "[]"},
		{[]uint64{20}, 5, 0, "[10 20 30]"}, // 20 was read after 30
		{nil, 6, 6, "[]"},
		{[]uint64{60, 50, 40}, 10, 9, "[]"},
		{[]uint64{45, 70}, 20, 10, "[40 45 50 60]"},
		{[]uint64{65}, 30, 20, "[65 70]"},
		{[]uint64{5}, 40, 40, "[5]"}, // too late for the right order, but not lost
		{nil, 50, 50, "[]"},
	} {
		for _, time := range step.add {
			q.add(event(time, 0), at(step.ms))
		}
		q.release(at(step.release))
		if got := fmt.Sprint(drain(&q)); got != step.want {
			t.Errorf("at %d ms: %s, want %s", step.ms, got, step.want)
		}
	}
	if q.pending() != 0 {
		t.Errorf("%d samples are pending, want 0", q.pending())
	}
}

func TestQueueKeepsEqualTimesInOrder(t *testing.T) {
	var q queue
	now := time.Now()
	for n := range uint64(100) {
		q.add(event(n*7%3, n), now)
	}
	q.release(now)
	last := [3]uint64{}
	for data := q.next(); data != nil; data = q.next() {
		at, n := timeOf(data), numberOf(data)
		if n < last[at] {
			t.Fatalf("event %d was returned after event %d with the same time", n, last[at])
		}
		last[at] = n
	}
}

// TestQueueSortsLateSamples checks that samples that are read less than hold after their event time
// are returned in order, each once.
func TestQueueSortsLateSamples(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	type arrival struct{ time, read time.Duration }
	var all []arrival
	for range 20000 {
		at := time.Duration(rnd.Int64N(int64(time.Second)))
		all = append(all, arrival{at, at + time.Duration(rnd.Int64N(int64(hold)))})
	}
	slices.SortFunc(all, func(a, b arrival) int { return int(a.read - b.read) })
	var q queue
	var got []uint64
	begin := time.Now()
	i := 0
	for now := time.Duration(0); now < 2*time.Second; now += pause {
		for ; i < len(all) && all[i].read <= now; i++ {
			q.add(event(uint64(all[i].time), 0), begin.Add(all[i].read))
		}
		q.release(begin.Add(now - hold))
		got = append(got, drain(&q)...)
	}
	if len(got) != len(all) || !slices.IsSorted(got) {
		t.Errorf("%d of %d samples, sorted: %v", len(got), len(all), slices.IsSorted(got))
	}
}

func BenchmarkQueue(b *testing.B) {
	data := make([][]byte, 10000)
	for i := range data {
		data[i] = event(uint64(i/2+i%2*5000), 0) // two interleaved CPUs
	}
	var q queue
	b.ReportAllocs()
	for b.Loop() {
		now := time.Now()
		for _, d := range data {
			q.add(d, now)
		}
		q.release(now)
		for q.next() != nil {
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(data)), "ns/event")
}
