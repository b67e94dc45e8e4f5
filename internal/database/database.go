// Package database has what the tools for queries of database servers share (query.bpf.h).
package database

import (
	"slices"
	"strconv"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// Options select the servers.
type Options struct {
	Database string `pos:"db" of:"mysql,postgres" help:"only servers of this type; mysql includes MariaDB" unset:"both types by default"`
	Exe      string `flag:"exe,x" arg:"PATH" help:"trace only this executable; of type mysql, unless postgres is given; with --pid an absolute path is first looked up below the root of the process"`
}

// Plan returns the plan for these servers. least is the minimum latency in nanoseconds.
func (o *Options) Plan(least uint64) tool.Plan {
	files := map[string]binary.Files{
		"postgres": {Names: []string{"postgres", "postmaster", "edb-postgres"}},
		"mysqld":   {Names: []string{"mysqld", "mysqld-*", "mariadbd", "mariadbd-*", "libmysqld.so*", "libmariadbd.so*"}},
	}
	hooks := map[string][]string{"postgres": {"postgres"}, "mysql": {"mysql", "mysqlprobe"}}
	plan := tool.Plan{Files: files, Variables: map[string]any{"targ_min_ns": least}, RowNoun: "query"}
	kind := o.Database
	if kind == "" && o.Exe != "" {
		kind = "mysql"
	}
	if kind != "" {
		delete(hooks, kind)
		for _, others := range hooks {
			plan.Without = append(plan.Without, others...)
		}
	}
	if o.Exe != "" {
		name := "mysqld"
		if kind == "postgres" {
			name = "postgres"
		}
		files[name] = binary.Files{Paths: []string{o.Exe}}
	}
	slices.Sort(plan.Without)
	return plan
}

// name is a number of an enum in query.bpf.h, which is shown as a word.
func name(n int, words []string) string {
	if n < len(words) {
		return words[n]
	}
	return strconv.Itoa(n)
}

// Type is a type of database: enum database.
type Type uint8

// The types.
const (
	Postgres Type = iota
	MySQL
)

func (v *Type) name() string               { return name(int(*v), []string{"postgres", "mysql"}) }
func (v *Type) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *Type) AppendJSON(b []byte) []byte { return value.AppendString(b, v.name()) }
func (v *Type) Any() any                   { return v.name() }
func (v *Type) Schema() value.Schema       { return value.Schema{Type: "string"} }

// Command is what a client requests: enum query_command.
type Command uint8

// The commands.
const (
	Query Command = iota
	Prepare
	Execute
)

func (v *Command) name() string               { return name(int(*v), []string{"query", "prepare", "execute"}) }
func (v *Command) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *Command) AppendJSON(b []byte) []byte { return value.AppendString(b, v.name()) }
func (v *Command) Any() any                   { return v.name() }
func (v *Command) Schema() value.Schema       { return value.Schema{Type: "string"} }

// Outcome states whether a query has failed: enum query_outcome.
type Outcome uint8

// The outcomes.
const (
	Unknown Outcome = iota
	Success
	Failure
)

// Flag returns whether the query has failed, if that is known.
func (v Outcome) Flag() value.Flag { return value.Flag{Set: v == Failure, Given: v != Unknown} }

// Manual describes in paragraphs of the manual pages which queries are observed.
const Manual = `The tool attaches to every PostgreSQL, MySQL and MariaDB server that runs or is started later, including those in containers.

PostgreSQL: the hooks are USDT probes. The server must be built with --enable-dtrace, as the packages of Debian and PGDG are; images based on Alpine Linux are not. A simple query is measured from query__start to query__done. It can contain several statements, and has one row. An Execute message of the extended protocol (prepared statements, JDBC and most other drivers) is measured from statement__status at the begin of the message to query__execute__done, so the time of Parse and Bind messages is not included: parsing and planning are usually a part of those. Its text is that of the prepared statement, without the values of parameters. A query that fails ends when the server process reports that it is idle, or with its next message. A Parse or Bind message that fails is not observed.

MySQL and MariaDB: the hook is the function dispatch_command, which executes a command of a client: MySQL 5.6 and later, MariaDB up to 11. The time is from its entry to its return, including the time to send the result. Commands are query, prepare (COM_STMT_PREPARE) and execute (COM_STMT_EXECUTE). The text of an execute is that of the prepared statement, without the values of parameters, if its prepare was observed and it is one of the last 2,048 used statements; others are counted in text_unknown. The ID of the statement is that of the server, unique in the connection. Queries PREPARE and EXECUTE in SQL are queries. Whether a query failed is unknown. The time of a command that MariaDB suspends (thread pool) is not measured: it is counted in no_end. A server without the symbol is traced by its USDT probes query__start and query__done, which MySQL had until 5.7.

Times are in CLOCK_BOOTTIME. Queries that run when the tool starts have no row. Queries without an observed end (the server process or thread has ended, or they run when the tool ends) are counted as no_end in the summary.`
