// Package dbstat shows the latency of queries of database servers as histograms.
package dbstat

import (
	"github.com/corescope/corescope/internal/database"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh dbstat.bpf.c

type options struct {
	database.Options
	Threshold    flags.Milliseconds `flag:"threshold,m" arg:"MS" help:"only queries that take at least this time: milliseconds, or with a unit as 500us"`
	Microseconds bool               `flag:"microseconds,u" help:"show microseconds instead of milliseconds"`
	Commands     bool               `flag:"commands" key:"command" help:"one histogram per command: query, prepare, execute"`
	Every        flags.Duration     `flag:"interval,i" pos:"interval" min:"1ms" help:"time between reports, in seconds or with a unit as 500ms" unset:"one report at the end by default"`
	Count        uint64             `pos:"count" min:"1" help:"number of reports; unlimited by default"`
	Timestamp    bool               `flag:"timestamp,T" help:"show the time of each report"`
}

// histKey mirrors struct hist_key.
type histKey struct{ Database, Command uint32 }

type label struct {
	Database database.Type    `json:"database" help:"postgres, or mysql including MariaDB; separate histograms unless the type is given"`
	Command  database.Command `json:"command" help:"query, prepare or execute"`
}

// Tool is the definition of dbstat.
var Tool = tool.Define(tool.Spec{
	Name:     "dbstat",
	Category: "runtime",
	Summary:  "MySQL, MariaDB and PostgreSQL query latency as a histogram",
	Description: `Measures the latency of queries of database servers. A query is counted when it ends. dbslower shows single queries.

` + database.Manual + `

` + tool.ReturnsManual,
	Peers: []string{
		"The type of database is optional. Without it, there is one histogram per type. Several processes are written as -p 1,2.",
		"All servers are traced, not only those that run at the start. MySQL and MariaDB need no USDT probes.",
		"Prepared statements, queries that fail and, with PostgreSQL, those of the extended protocol are counted.",
	},
	Examples: []string{
		"dbstat                    # one report at the end",
		"dbstat postgres -u        # PostgreSQL, in microseconds",
		"dbstat mysql -m 1 -i 10   # queries of 1 ms or more, a report every ten seconds",
		"dbstat -p 480 --commands  # one server, by command",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	unit, name, keys := histogram.Milliseconds, "query latency (ms)", source.Keys(o)
	if o.Microseconds {
		unit, name = histogram.Microseconds, "query latency (us)"
	}
	if o.Database == "" {
		keys = append([]string{"database"}, keys...)
	}
	return &source.Hists[histKey, label]{
		Plan:     o.Plan(uint64(o.Threshold)),
		Interval: source.Interval{Rounds: source.Rounds{Every: o.Every, Count: o.Count}, Timestamp: o.Timestamp},
		Unit:     unit,
		Name:     name,
		Keys:     keys,
		Bounds:   map[string]uint32{"database": 2, "command": 4},
		Label: func(k histKey) (l label) {
			l.Database = database.Type(k.Database)
			if o.Commands {
				l.Command = database.Command(k.Command)
			}
			return l
		},
	}, nil
}
