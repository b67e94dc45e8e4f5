package dbslower

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

const (
	mysql57   = "_Z16dispatch_commandP3THDPK8COM_DATA19enum_server_command"
	mysql56   = "_Z16dispatch_command19enum_server_commandP3THDPcj"
	mariadb10 = "_Z16dispatch_command19enum_server_commandP3THDPcjbb"
	mariadb11 = "_Z16dispatch_command19enum_server_commandP3THDPcjb"
)

// Commands of MySQL.
const (
	comPing    = 14
	comQuery   = 3
	comPrepare = 22
	comExecute = 23
)

const sleep = 2 * time.Millisecond

func self(more ...string) []string { return append(more, "--pid", fmt.Sprint(os.Getpid())) }

// arg returns the description of an argument of a USDT probe in the n-th register for arguments.
func arg(n int) string {
	if runtime.GOARCH == "arm64" {
		return fmt.Sprintf("8@x%d", n)
	}
	return "8@" + []string{"%rdi", "%rsi", "%rdx"}[n]
}

// inThread calls f in one thread, as each session of a server has one.
func inThread(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f()
}

// postgres returns a library with the USDT probes of PostgreSQL.
func postgres(t testing.TB) *native.Library {
	t.Helper()
	var probes []native.Probe
	functions := []string{"statement__status", "query__start", "query__done", "query__execute__start", "query__execute__done"}
	for i, name := range functions {
		p := native.Probe{Function: name, Provider: "postgresql", Name: name, Semaphore: true}
		if i < 3 {
			p.Args = arg(0)
		}
		probes = append(probes, p)
	}
	return native.Open(t, "postgres", functions, probes...)
}

// server calls the probes of PostgreSQL: "start" is query__start, "idle" statement__status with NULL.
func server(lib *native.Library, text string, calls string) {
	at := native.Text(text)
	for _, name := range strings.Fields(calls) {
		call := native.Call{Args: [7]uint64{native.Pointer(at)}}
		if name == "idle" {
			name, call.Args[0] = "statement__status", 0
		}
		if name, isSlow := strings.CutPrefix(name, "slow:"); isSlow {
			call.Sleep = sleep
			lib.Call(name, call)
			continue
		}
		lib.Call(name, call)
	}
}

// want is an expected row.
type want struct {
	query, command string
	failed         any // nil if absent
	slow, cut      bool
	statement      float64
}

func check(t *testing.T, rows []tooltest.Row, kind string, all []want) {
	t.Helper()
	if len(rows) != len(all) {
		t.Fatalf("%d rows, want %d: %v", len(rows), len(all), rows)
	}
	for i, w := range all {
		r := rows[i]
		if r.Bytes(t, "query") != w.query || r.Str("command") != w.command || r["failed"] != w.failed || r["truncated"] != w.cut ||
			r.Num("statement_id") != w.statement || r.Str("database") != kind {
			t.Errorf("row %.300v, want %.200v", r, w)
		}
		if d := time.Duration(r.Num("latency_ns")); w.slow && d < sleep || d == 0 || d > time.Minute {
			t.Errorf("%.60q took %v, want at least %v: %v", w.query, d, sleep, w.slow)
		}
	}
}

func TestPostgres(t *testing.T) {
	lib, long := postgres(t), strings.Repeat("x", 4095)
	res := tooltest.JSON(t, Tool, self("-m", "0"), func() {
		inThread(func() {
			server(lib, "before", "query__done query__execute__start query__execute__done idle")
			server(lib, "select 1", "statement__status query__start query__execute__start query__execute__done slow:query__done idle")
			server(lib, "two\x1b[31m\xff", "statement__status slow:query__start query__done idle")
			server(lib, "fails", "statement__status slow:query__start query__execute__start idle")
			server(lib, "fails again", "statement__status query__start")
			server(lib, long, "statement__status query__start query__done idle")
			server(lib, long+"y", "statement__status query__start query__done idle")
			// The extended protocol: Parse, Bind and Execute, of a portal that executes another one.
			server(lib, "extended", "slow:statement__status slow:statement__status statement__status query__execute__start query__execute__start slow:query__execute__done query__execute__done idle")
			server(lib, "extended slow", "statement__status slow:query__execute__start query__execute__done idle")
			server(lib, "extended fails", "statement__status query__execute__start idle")
			server(lib, "only parsed", "statement__status idle")
			server(lib, "does not end", "statement__status query__start")
		})
	})
	// A call that sleeps does so after its probe.
	check(t, res.Events, "postgres", []want{
		{query: "select 1", command: "query", failed: false},
		{query: "two\x1b[31m\xff", command: "query", failed: false, slow: true},
		{query: "fails", command: "query", failed: true, slow: true},
		{query: "fails again", command: "query", failed: true},
		{query: long, command: "query", failed: false},
		{query: long, command: "query", failed: false, cut: true},
		{query: "extended", command: "execute", failed: false, slow: true},
		{query: "extended slow", command: "execute", failed: false, slow: true},
		{query: "extended fails", command: "execute", failed: true},
	})
	if n := res.Summary.Object("counters").Num("no_end"); n != 1 || tooltest.Lost(res.Summary) != 0 {
		t.Errorf("no_end is %v, want 1: %v", n, res.Summary)
	}
}

func TestThreshold(t *testing.T) {
	lib := postgres(t)
	for _, args := range [][]string{{"-m", "2"}, {"postgres"}, {"-m", "2", "postgres"}} {
		res := tooltest.JSON(t, Tool, self(args...), func() {
			inThread(func() {
				server(lib, "fast", "statement__status query__start query__done idle")
				server(lib, "slow", "statement__status slow:query__start query__done idle")
			})
		})
		rows := res.Where(func(r tooltest.Row) bool { return r.Str("query") != "fast" || r.Num("latency_ns") < 1e6 })
		check(t, rows, "postgres", []want{{query: "slow", command: "query", failed: false, slow: true}})
	}
	mysql := native.Open(t, "mysqld", []string{mysql57})
	for kind, want := range map[string][]want{
		"mysql":    {{query: "mine", command: "query"}},
		"postgres": {{query: "other", command: "query", failed: false}},
	} {
		res := tooltest.JSON(t, Tool, self(kind, "-m", "0"), func() {
			inThread(func() {
				dispatch(mysql, mysql57, comQuery, "mine", native.Call{})
				server(lib, "other", "statement__status query__start query__done idle")
			})
		})
		check(t, res.Events, kind, want)
	}
}

// dispatch calls a function of a MySQL server. The text is in a buffer without a NUL byte at its end.
func dispatch(lib *native.Library, function string, command uint64, text string, call native.Call) {
	packet := []byte(text + "garbage")
	data := &struct{ query, length uint64 }{native.Pointer(&packet[0]), uint64(len(text))}
	call.Args = [7]uint64{command, 0xbad, native.Pointer(&packet[0]), uint64(len(text))}
	if function == mysql57 {
		call.Args = [7]uint64{0xbad, native.Pointer(data), command}
		if command == comExecute {
			data.query = uint64(text[0])
		}
	}
	lib.Call(function, call)
	runtime.KeepAlive(packet)
	runtime.KeepAlive(data)
}

// TestMySQL uses the signatures of all versions.
func TestMySQL(t *testing.T) {
	long := strings.Repeat("y", 4096)
	for _, function := range []string{mysql57, mysql56, mariadb10, mariadb11} {
		lib := native.Open(t, "mysqld", []string{function})
		res := tooltest.JSON(t, Tool, self("-m", "0"), func() {
			inThread(func() {
				dispatch(lib, function, comQuery, "select 1", native.Call{Sleep: sleep, Ret: 1})
				dispatch(lib, function, comPing, "ping", native.Call{})
				dispatch(lib, function, comPrepare, "select ?", native.Call{})
				dispatch(lib, function, comExecute, "\x07\x00\x00\x00", native.Call{Sleep: sleep})
				dispatch(lib, function, comQuery, "zero\x00byte\xff", native.Call{})
				dispatch(lib, function, comQuery, long, native.Call{})
				dispatch(lib, function, comQuery, long+"z", native.Call{})
				dispatch(lib, function, comQuery, "suspended", native.Call{Ret: 2})
			})
		})
		all := []want{
			{query: "select 1", command: "query", slow: true},
			{query: "select ?", command: "prepare"},
			{command: "execute", slow: true, statement: 7},
			{query: "zero\x00byte\xff", command: "query"},
			{query: long, command: "query"},
			{query: long, command: "query", cut: true},
		}
		suspended := 1.0
		if function != mariadb11 {
			all, suspended = append(all, want{query: "suspended", command: "query"}), 0
		}
		check(t, res.Events, "mysql", all)
		if n := res.Summary.Object("counters").Num("no_end"); n != suspended || tooltest.Lost(res.Summary) != 0 {
			t.Errorf("no_end is %v, want %v: %v", n, suspended, res.Summary)
		}
	}
}

// TestProbes uses the USDT probes of MySQL, alone and within dispatch_command.
func TestProbes(t *testing.T) {
	lib := native.Open(t, "mysqld", []string{mariadb10, "start", "done"},
		native.Probe{Function: "start", Provider: "mysql", Name: "query__start", Args: arg(2)},
		native.Probe{Function: "done", Provider: "mysql", Name: "query__done", Args: arg(0)})
	text := native.Text("by probe")
	res := tooltest.JSON(t, Tool, self("-m", "0"), func() {
		inThread(func() {
			for _, failed := range []uint64{0, 1} {
				lib.Call("start", native.Call{Args: [7]uint64{2: native.Pointer(text)}, Sleep: sleep})
				lib.Call("done", native.Call{Args: [7]uint64{failed}})
			}
			dispatch(lib, mariadb10, comQuery, "by function", native.Call{Inner: "start"})
			lib.Call("done", native.Call{})
		})
	})
	check(t, res.Events, "mysql", []want{
		{query: "by probe", command: "query", slow: true, failed: false},
		{query: "by probe", command: "query", slow: true, failed: true},
		{query: "by function", command: "query"},
	})
}

const (
	prepareStatement = "_ZN18Prepared_statement7prepareEPKcj"
	executeStatement = "_ZN18Prepared_statement12execute_loopEP6StringbPhS2_"
	destroyStatement = "_ZN18Prepared_statementD1Ev"
)

// TestStatements uses prepared statements, which an object of the server identifies.
func TestStatements(t *testing.T) {
	lib := native.Open(t, "mysqld", []string{mysql57, prepareStatement, executeStatement, destroyStatement})
	const first, second, unknown = 0x1000, 0x2000, 0x3000
	command := func(command uint64, text, inner string, object uint64) {
		packet := []byte(text)
		data := &struct{ query, length uint64 }{native.Pointer(&packet[0]), uint64(len(text))}
		if command == comExecute {
			data.query = 7
		}
		lib.Call(mysql57, native.Call{Args: [7]uint64{object, native.Pointer(data), command}, Inner: inner})
		runtime.KeepAlive(packet)
		runtime.KeepAlive(data)
	}
	long := strings.Repeat("z", 4096)
	res := tooltest.JSON(t, Tool, self("-m", "0"), func() {
		inThread(func() {
			command(comPrepare, "select ?", prepareStatement, first)
			command(comPrepare, long+"z", prepareStatement, second)
			command(comExecute, "7", executeStatement, first)
			command(comExecute, "7", executeStatement, second)
			command(comPrepare, "again \x00?", prepareStatement, second)
			command(comExecute, "7", executeStatement, second)
			command(comExecute, "7", executeStatement, unknown)
			// PREPARE and EXECUTE in SQL use the same functions.
			command(comQuery, "prepare", prepareStatement, first)
			command(comQuery, "execute", executeStatement, unknown)
			command(comExecute, "7", executeStatement, first)
			lib.Call(destroyStatement, native.Call{Args: [7]uint64{first}})
			command(comExecute, "7", executeStatement, first)
		})
	})
	check(t, res.Events, "mysql", []want{
		{query: "select ?", command: "prepare"},
		{query: long, command: "prepare", cut: true},
		{query: "select ?", command: "execute", statement: 7},
		{query: long, command: "execute", statement: 7, cut: true},
		{query: "again \x00?", command: "prepare"},
		{query: "again \x00?", command: "execute", statement: 7},
		{command: "execute", statement: 7},
		{query: "prepare", command: "query"},
		{query: "execute", command: "query"},
		{query: "select ?", command: "execute", statement: 7},
		{command: "execute", statement: 7},
	})
	if n := res.Summary.Object("counters").Num("text_unknown"); n != 2 {
		t.Errorf("text_unknown is %v, want 2", n)
	}
}

func TestText(t *testing.T) {
	lib := native.Open(t, "mysqld", []string{mysql57})
	out := tooltest.Text(t, Tool.As("mysqld_qslower"), []string{fmt.Sprint(os.Getpid()), "1"}, func() {
		inThread(func() {
			dispatch(lib, mysql57, comQuery, "first\x1b", native.Call{Sleep: sleep})
			dispatch(lib, mysql57, comQuery, strings.Repeat("a", 5000), native.Call{Sleep: sleep})
		})
	})
	lines := strings.Split(out, "\n")
	if len(lines) != 4 || strings.Join(strings.Fields(lines[0]), " ") != "TIME(s) PID MS QUERY" ||
		!strings.HasSuffix(lines[1], ` first\x1b`) || !strings.HasSuffix(lines[2], "aaaa...") {
		t.Errorf("text is %q", out)
	}
}

// TestExe selects an executable.
func TestExe(t *testing.T) {
	lib, other := native.Open(t, "server", []string{mysql57}), native.Open(t, "mysqld", []string{mysql57})
	res := tooltest.JSON(t, Tool, self("-m", "0", "-x", lib.Path), func() {
		inThread(func() {
			dispatch(lib, mysql57, comQuery, "yes", native.Call{})
			dispatch(other, mysql57, comQuery, "no", native.Call{})
		})
	})
	check(t, res.Events, "mysql", []want{{query: "yes", command: "query"}})
	tooltest.Fails(t, Tool, []string{"postgres", "-x", lib.Path}, tool.ExitUsage, "has no attach point")
}
