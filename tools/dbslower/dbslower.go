// Package dbslower traces slow queries of database servers.
package dbslower

import (
	"fmt"
	"time"

	"github.com/corescope/corescope/internal/database"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh dbslower.bpf.c

type options struct {
	database.Options
	PID       uint32             `pos:"pid" sets:"pid" min:"1" help:"server process, for compatibility with mysqld_qslower"`
	Threshold flags.Milliseconds `flag:"threshold,m" pos:"min_ms" arg:"MS" help:"only queries that take at least this time: milliseconds, or with a unit as 500us"`
}

type event struct {
	value.Task
	Latency     value.Nanoseconds `json:"latency_ns" col:"MS,width=10,right" help:"time from start to end of the query, CLOCK_BOOTTIME; the description defines both" btf:"latency_ns"`
	TextLen     uint32
	StatementID uint32
	Database    database.Type    `json:"database" col:"DATABASE,width=8" help:"postgres, or mysql including MariaDB"`
	Command     database.Command `json:"command" col:"COMMAND,width=7" help:"query, prepare or execute"`
	Outcome     database.Outcome
	Truncated   bool `json:"truncated" col:"CUT,width=5" help:"the text is longer: query has only its first 4,095 (postgres) or 4,096 bytes, and text shows ... after it"`
	_           uint32
}

type row struct {
	event
	source.Elapsed
	Failed    value.Flag  `json:"failed" col:"FAILED,width=6" help:"whether the server reported an error; absent for mysql, except with its USDT probes"`
	Statement value.Count `json:"statement_id" col:"STATEMENT,width=9" help:"ID of the prepared statement, unique in the connection; absent except for execute of mysql"`
	Query     value.Part  `json:"query" col:"QUERY,width=40" help:"text of the query, for execute of the prepared statement; absent if the memory of the server could not be read, and for execute of mysql if the prepare was not observed (text_unknown in the summary)"`
}

// Decode reads the text, which follows the event.
func (r *row) Decode(tail []byte) error {
	if int(r.TextLen) > len(tail) {
		return fmt.Errorf("tail has %d bytes, the query has %d", len(tail), r.TextLen)
	}
	r.Query = value.Part{Bytes: tail[:r.TextLen], IsCut: r.Truncated}
	if r.TextLen == 0 {
		r.Query.Bytes = nil
	}
	r.Failed = r.Outcome.Flag()
	r.Statement = value.Count{N: uint64(r.StatementID), Given: r.event.Database == database.MySQL && r.Command == database.Execute}
	return nil
}

// Tool is the definition of dbslower.
var Tool = tool.Define(tool.Spec{
	Name:     "dbslower",
	Also:     []tool.Alias{{Name: "mysqld_qslower", Args: []string{"mysql"}}},
	Category: "runtime",
	Summary:  "Trace slow queries of MySQL, MariaDB and PostgreSQL: SQL text and latency",
	Description: `Shows each query of a database server that takes 1 ms or more (-m), when it ends, with its text.

` + database.Manual + `

Texts can contain passwords and personal data.

` + tool.ReturnsManual,
	Peers: []string{
		"The type of database is optional. Several processes are written as -p 1,2.",
		"All servers are traced, not only those that run at the start, and without -x. MariaDB and MySQL 5.7 and later are traced without -x.",
		"BCC shows at most 256 bytes of a query. It does not observe prepared statements and, with PostgreSQL, queries that fail or use the extended protocol.",
		"mysqld_qslower traces servers without USDT probes too. Its arguments are PID and MIN_MS, as in BCC; the PID is optional.",
	},
	Overhead: "A simple query of PostgreSQL passes six probes. Their programs take 2.3 us in all (20,000 queries, busy virtual machine); entering the kernel for each probe comes on top.",
	Examples: []string{
		"dbslower                         # queries of 1 ms or more, of all servers",
		"dbslower postgres -m 100         # 100 ms or more, only PostgreSQL",
		"dbslower mysql -p 480 -m 0       # all queries of one MySQL or MariaDB server",
		"dbslower -x /opt/mysql/bin/mysqld # one executable",
		`dbslower -m 0 --filter 'query contains "orders"' --columns +command,failed,container # queries of a table`,
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p"},
}, options{Threshold: flags.Milliseconds(time.Millisecond)}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &source.Events[row]{
		Plan:        o.Plan(uint64(o.Threshold)),
		Columns:     []string{"elapsed_ns", "pid", "latency_ns", "query"},
		BufferBytes: 4 << 20,
	}, nil
}
