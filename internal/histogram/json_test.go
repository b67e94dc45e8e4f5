package histogram

import (
	"bytes"
	"encoding/json"
	"math/big"
	"testing"
)

func TestAppendJSON(t *testing.T) {
	tests := []struct {
		name string
		h    *Histogram
		want string
	}{
		{"empty", New(Milliseconds), `"unit":"msecs","count":0,"sum":0,"min":null,"max":null,"mean":null,` +
			`"p50":null,"p90":null,"p99":null,"p999":null,"buckets":[]`},
		{"usecs", record(New(Microseconds), 100, 200, 2000), `"unit":"usecs","count":3,"sum":2.3,"min":0.1,"max":2,"mean":0.767,` +
			`"p50":0.2,"p90":2,"p99":2,"p999":2,"buckets":[` +
			`{"lo":0.098,"hi":0.102,"count":1},{"lo":0.196,"hi":0.204,"count":1},{"lo":2,"hi":2.125,"count":1}]`},
		{"distinct percentiles", decades(), `"unit":"usecs","count":1000,"sum":1748,"min":1,"max":16,"mean":1.748,` +
			`"p50":1,"p90":2,"p99":4,"p999":8,"buckets":[{"lo":1,"hi":1.063,"count":500},{"lo":2,"hi":2.125,"count":400},` +
			`{"lo":4,"hi":4.25,"count":90},{"lo":8,"hi":8.5,"count":9},{"lo":16,"hi":17,"count":1}]`},
		{"nsecs", record(New(Nanoseconds), 1, 2, 2), `"unit":"nsecs","count":3,"sum":5,"min":1,"max":2,"mean":2,` +
			`"p50":2,"p90":2,"p99":2,"p999":2,"buckets":[{"lo":1,"hi":2,"count":1},{"lo":2,"hi":3,"count":2}]`},
	}
	for _, tt := range tests {
		if got := string(tt.h.AppendJSON([]byte("{"))); got != "{"+tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, got[1:], tt.want)
		}
	}
}

// TestAppendJSONIsExact parses the numbers as decimals and compares them with whole nanoseconds.
func TestAppendJSONIsExact(t *testing.T) {
	for _, u := range units {
		h := record(New(u), randomDurations(seeded(10), 2000)...)
		var got struct {
			Count         uint64
			Sum, Min, Max json.Number
			Buckets       []struct {
				Lo, Hi json.Number
				Count  uint64
			}
		}
		decoder := json.NewDecoder(bytes.NewReader(append(h.AppendJSON([]byte("{")), '}')))
		decoder.UseNumber()
		if err := decoder.Decode(&got); err != nil {
			t.Fatal(err)
		}
		same := func(name string, number json.Number, want uint64) {
			value, ok := new(big.Rat).SetString(number.String())
			if !ok || value.Mul(value, new(big.Rat).SetUint64(uint64(u))).Cmp(new(big.Rat).SetUint64(want)) != 0 {
				t.Errorf("%v: %s = %s, want %d ns", u, name, number, want)
			}
		}
		same("sum", got.Sum, h.total.Sum)
		same("min", got.Min, h.total.Min)
		same("max", got.Max, h.total.Max)
		if got.Count != h.Count() || len(got.Buckets) != len(h.Buckets()) {
			t.Fatalf("%v: count %d, %d buckets", u, got.Count, len(got.Buckets))
		}
		for i, b := range h.Buckets() {
			same("lo", got.Buckets[i].Lo, b.Lo)
			same("hi", got.Buckets[i].Hi, b.Hi)
			if got.Buckets[i].Count != b.Count {
				t.Errorf("%v: bucket %d holds %d, want %d", u, i, got.Buckets[i].Count, b.Count)
			}
		}
	}
}
