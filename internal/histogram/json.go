package histogram

import "strconv"

// AppendJSON appends the members of a JSON object, without its braces:
//
//	"unit":"usecs","count":3,"sum":4.5,"min":0.5,"max":2,"mean":1.5,
//	"p50":2,"p90":2,"p99":2,"p999":2,"buckets":[{"lo":0.5,"hi":0.532,"count":1},…]
//
// All numbers except the counts are in the unit of the histogram, as exact decimals of
// whole nanoseconds; the mean and the percentiles are rounded to nanoseconds, except for the mean
// of plain numbers. Empty
// buckets are omitted; a bucket holds the durations lo <= duration < hi. For an empty
// histogram, count and sum are 0, buckets is empty and the other members are null.
func (h *Histogram) AppendJSON(dst []byte) []byte {
	dst = append(dst, `"unit":"`...)
	dst = append(dst, h.unit.String()...)
	dst = append(dst, `","count":`...)
	dst = strconv.AppendUint(dst, h.total.Count, 10)
	dst = append(dst, `,"sum":`...)
	dst = h.unit.appendDecimal(dst, h.total.Sum)
	if h.total.Count == 0 {
		return append(dst, `,"min":null,"max":null,"mean":null,"p50":null,"p90":null,"p99":null,"p999":null,"buckets":[]`...)
	}
	dst = h.appendJSONStats(dst)
	return h.appendJSONBuckets(dst)
}

func (h *Histogram) appendJSONStats(dst []byte) []byte {
	stat := func(name string, ns uint64) {
		dst = append(dst, name...)
		dst = h.unit.appendDecimal(dst, ns)
	}
	stat(`,"min":`, h.total.Min)
	stat(`,"max":`, h.total.Max)
	dst = h.appendMean(append(dst, `,"mean":`...), -1)
	stat(`,"p50":`, h.percentile(50))
	stat(`,"p90":`, h.percentile(90))
	stat(`,"p99":`, h.percentile(99))
	stat(`,"p999":`, h.percentile(99.9))
	return dst
}

func (h *Histogram) appendJSONBuckets(dst []byte) []byte {
	dst = append(dst, `,"buckets":[`...)
	for i, c := range h.cells {
		if i > 0 {
			dst = append(dst, ',')
		}
		lo, hi := h.bounds(c.slot)
		dst = append(dst, `{"lo":`...)
		dst = h.unit.appendDecimal(dst, lo)
		dst = append(dst, `,"hi":`...)
		dst = h.unit.appendDecimal(dst, hi)
		dst = append(dst, `,"count":`...)
		dst = strconv.AppendUint(dst, c.Count, 10)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}
