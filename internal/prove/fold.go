package prove

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// counters are the columns of tables and histograms that are summed over intervals.
func isCounter(key string) bool {
	return strings.HasSuffix(key, "_ns") && key != "interval_ns" && !strings.HasPrefix(key, "avg") ||
		strings.HasSuffix(key, "_bytes") || strings.HasSuffix(key, "_sgs") ||
		slices.Contains([]string{
			"count", "errors", "sum", "reads", "writes", "fsyncs", "opens", "creates", "unlinks", "mkdirs", "rmdirs", "bytes", "ios",
			"hits", "misses", "dirties", "processes", "threads", "refs", "slow", "packets", "runs", "random", "sequential", "changes",
			"samples", "allocs", "added", "dirtied",
		}, key)
}

// rowsSummed is the column with the number of rows that fold has summed.
const rowsSummed = "number of rows"

// fold sums the counters of rows that have the same values of the columns by, over all intervals and over the
// values of other columns. The object key of a histogram counts as columns.
func fold(rows []row, by []string) []row {
	var out []row
	index := map[string]row{}
	for _, r := range rows {
		r = flat(r)
		id := r.id(by)
		to := index[id]
		if to == nil {
			to = row{}
			for _, k := range by {
				if v, ok := r[k]; ok {
					to[k] = v
				}
			}
			index[id] = to
			out = append(out, to)
		}
		add(to, r)
	}
	return out
}

// id returns the values of some columns.
func (r row) id(columns []string) string {
	s := ""
	for _, k := range columns {
		s += text(r[k]) + "\x00"
	}
	return s
}

func add(to, r row) {
	to[rowsSummed] = sum(to[rowsSummed], "1")
	for k, v := range r {
		if k == "buckets" && to[k] != nil && to[k] != consistent {
			continue
		}
		switch n, ok := v.(json.Number); {
		case k == "buckets":
			to[k] = v
		case !ok:
		case isCounter(k):
			to[k] = sum(to[k], n)
		case k == "bucket_count":
			to[k] = sum(to[k], n)
		case k == "min":
			if old, ok := number(to[k]); !ok || old > must(n) {
				to[k] = n
			}
		case k == "max":
			if old, ok := number(to[k]); !ok || old < must(n) {
				to[k] = n
			}
		}
	}
}

func must(n json.Number) float64 {
	f, _ := n.Float64()
	return f
}

// sum adds two numbers, whole ones without rounding.
func sum(a any, b json.Number) json.Number {
	old, ok := a.(json.Number)
	if !ok {
		return b
	}
	x, errX := old.Int64()
	y, errY := b.Int64()
	if errX == nil && errY == nil {
		return json.Number(strconv.FormatInt(x+y, 10))
	}
	return json.Number(strconv.FormatFloat(must(old)+must(b), 'f', 3, 64))
}

// flat makes the members of a histogram's key, and the number of its values by bucket, columns.
func flat(r row) row {
	key, ok := r["key"].(map[string]any)
	if !ok {
		return r
	}
	out := row{}
	for k, v := range r {
		if k != "key" {
			out[k] = v
		}
	}
	for k, v := range key {
		out[k] = v
	}
	out["bucket_count"], out["buckets"] = buckets(r)
	return out
}

// consistent is the value of the column buckets of a histogram whose values are in their buckets, as far as
// the sum, the minimum and the maximum of the values show.
const consistent = "consistent with sum, min and max"

// buckets returns the number of values in all buckets of a histogram, and whether the buckets agree with
// the sum, the minimum and the maximum, which the kernel counts separately.
func buckets(r row) (count json.Number, state string) {
	all, _ := r["buckets"].([]any)
	count = "0"
	var least, most float64
	for i, b := range all {
		m, _ := b.(map[string]any)
		n, _ := m["count"].(json.Number)
		lo, _ := number(m["lo"])
		hi, _ := number(m["hi"])
		count = sum(count, n)
		least, most = least+lo*must(n), most+hi*must(n)
		if v, ok := number(r["min"]); ok && i == 0 && (v < lo-rounding || v > hi+rounding) {
			state = fmt.Sprintf("min %v is not in the first bucket, %v to %v", v, lo, hi)
		}
		if v, ok := number(r["max"]); ok && i == len(all)-1 && (v < lo-rounding || v > hi+rounding) {
			state = fmt.Sprintf("max %v is not in the last bucket, %v to %v", v, lo, hi)
		}
	}
	slack := rounding * must(count)
	if total, ok := number(r["sum"]); ok && (total < least-slack || total > most+slack) {
		state = fmt.Sprintf("sum %v is not in the range of the buckets, %v to %v", total, least, most)
	}
	return count, cmp.Or(state, consistent)
}

// rounding is the error of the bounds and values in JSON, which have three digits after the point.
const rounding = 0.001
