// Package biopattern shows how much disk I/O is random and how much is sequential.
package biopattern

import (
	"math"
	"time"

	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh biopattern.bpf.c

type options struct {
	blockio.Options
	source.Interval
}

// key mirrors struct table_key.
type key struct{ Dev uint32 }

// counts mirrors struct table_value.
type counts struct{ IOs, Sequential, Random, Bytes uint64 }

type row struct {
	Disk       string        `json:"disk" col:"DISK,width=7" help:"name of the disk; MAJOR:MINOR if it has none"`
	RandomPct  value.Percent `json:"random_percent" col:"%RND,width=7,right" help:"random as a percentage of random and sequential; absent if both are 0"`
	SeqPct     value.Percent `json:"sequential_percent" col:"%SEQ,width=7,right" help:"sequential as a percentage of random and sequential; absent if both are 0"`
	IOs        uint64        `json:"ios" col:"COUNT,width=8,right,counter" help:"requests with data that completed in the interval, including the first one on the disk"`
	Bytes      value.Size    `json:"bytes" col:"KBYTES,width=12,right" help:"bytes of these requests; text shows units of 1,024"`
	Random     uint64        `json:"random" col:"RANDOM,width=8,right" help:"of these, requests that do not start where the previously completed request on the disk ends"`
	Sequential uint64        `json:"sequential" col:"SEQUENTIAL,width=10,right" help:"of these, requests that start where the previously completed request on the disk ends"`
}

// Tool is the definition of biopattern.
var Tool = tool.Define(tool.Spec{
	Name:     "biopattern",
	Category: "block",
	Summary:  "Random and sequential disk (block) I/O per disk, in per cent",
	Description: `Counts block I/O requests by disk and interval: those that are sequential to the previous request on the disk, and all others, which are random. Without an interval there is one report at the end.

A request is counted on completion (block_rq_complete), with all its bytes, even if it completed in parts. It is sequential if it starts at the sector after the end of the request that was completed before it on the same disk, of any partition, and random if not. The first request of a run on a disk is neither. Requests without data, such as flushes, are not counted.

The order is that of completion. If a disk works on several requests at once it can complete them in another order than that in which they were issued, and sequential I/O then appears as partly random. Requests are those of the disk: the kernel merges adjacent reads and writes, so sequential I/O has fewer and larger requests.

With a task filter, only requests that these tasks submitted are counted, and compared with each other. -d with a partition does the same for its requests. The submitter is recorded as described in biosnoop(8).

I/O of device mapper and md disks is shown as I/O of the underlying disks. The counters in the summary are those of biolatency(8).`,
	Peers: []string{
		"-T shows a column TIME, as in libbpf-tools and BCC.",
		"A request that completes in parts is one request. In libbpf-tools and BCC each part counts, and all but the first as sequential.",
		"Flushes are not counted. The peers compare their position 0, which makes them and the next request random.",
		"COUNT includes the first request on a disk; the peers omit it, and include its bytes.",
		"%RND and %SEQ have decimals.",
	},
	Examples: []string{
		"biopattern              # one report at the end",
		"biopattern -T 1 10      # each second, ten times, with the time",
		"biopattern -d nvme0n1   # one disk",
		"biopattern --comm fio --filter 'random_percent > 50' 5  # requests of one program, disks with mostly random I/O",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan, err := o.Plan(env)
	if err != nil {
		return nil, err
	}
	plan.ForFilter = []string{"submit"}
	columns := []string{"disk", "random_percent", "sequential_percent", "ios", "bytes"}
	if o.Timestamp {
		columns = append([]string{"time"}, columns...)
	}
	return &source.Table[key, counts, row]{
		Plan: plan, Rounds: o.Rounds, Ranking: source.Ranking{Sort: "ios"},
		Columns: columns,
		Label:   func(k *key, _ *counts) row { return row{Disk: blockio.DiskName(k.Dev, env)} },
		Fill:    fill,
	}, nil
}

func fill(r *row, c *counts, _ time.Duration) {
	r.IOs, r.Bytes, r.Random, r.Sequential = c.IOs, value.Size(c.Bytes), c.Random, c.Sequential
	r.RandomPct, r.SeqPct = percent(c.Random, c.Sequential), percent(c.Sequential, c.Random)
}

// percent returns n as a percentage of n and others.
func percent(n, others uint64) value.Percent {
	if n+others == 0 {
		return value.Percent(math.NaN())
	}
	return value.Percent(100 * float64(n) / float64(n+others))
}
