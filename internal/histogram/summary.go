package histogram

// Stats summarizes a histogram. Count is a number of values; all others are in the histogram's
// unit.
type Stats struct {
	Count uint64  `json:"count" help:"values"`
	Sum   float64 `json:"sum" help:"sum of the values, in the unit"`
	Min   float64 `json:"min" help:"least value, in the unit"`
	Max   float64 `json:"max" help:"greatest value, in the unit"`
	Mean  float64 `json:"mean" help:"mean, in the unit"`
	P50   float64 `json:"p50" help:"median, in the unit"`
	P90   float64 `json:"p90" help:"90th percentile, in the unit"`
	P99   float64 `json:"p99" help:"99th percentile, in the unit"`
	P999  float64 `json:"p999" help:"99.9th percentile, in the unit"`
}

// Stats returns the statistics of all values.
func (h *Histogram) Stats() Stats {
	return Stats{
		Count: h.Count(), Sum: h.Sum(), Min: h.Min(), Max: h.Max(), Mean: h.Mean(),
		P50: h.Percentile(50), P90: h.Percentile(90), P99: h.Percentile(99), P999: h.Percentile(99.9),
	}
}
