package dbslower

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

// servers is the root file system that scripts/databases.sh creates.
type servers struct {
	t         *testing.T
	root, dir string // dir is a directory in it
	user      *syscall.Credential
}

// newServers skips the test if the file system does not exist. user is the user of the server.
func newServers(t *testing.T, user string) *servers {
	t.Helper()
	tooltest.Root(t)
	path, err := exec.Command("../../scripts/databases.sh", "--path").Output()
	root := strings.TrimSpace(string(path))
	if _, statErr := os.Stat(root); err != nil || statErr != nil {
		t.Skipf("no real servers: %v, %v (scripts/databases.sh installs them)", err, statErr)
	}
	passwd, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil {
		t.Fatal(err)
	}
	ids := regexp.MustCompile(`(?m)^` + user + `:x:(\d+):(\d+):`).FindStringSubmatch(string(passwd))
	if ids == nil {
		t.Fatalf("%s has no user %s", root, user)
	}
	uid, _ := strconv.Atoi(ids[1]) // digits
	gid, _ := strconv.Atoi(ids[2])
	s := &servers{t: t, root: root, user: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	host, err := os.MkdirTemp(filepath.Join(root, "tmp"), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(host) })
	if err := os.Chown(host, uid, gid); err != nil {
		t.Fatal(err)
	}
	s.dir = strings.TrimPrefix(host, root)
	return s
}

// command returns a command in the root file system, as the user of the server.
func (s *servers) command(name string, args ...string) *exec.Cmd {
	cmd := &exec.Cmd{Path: name, Args: append([]string{name}, args...), Dir: "/", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/tmp"}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: s.root, Credential: s.user, Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (s *servers) run(name string, args ...string) {
	s.t.Helper()
	if out, err := s.command(name, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

// start starts a server until the test ends, and waits until the client command succeeds.
func (s *servers) start(cmd *exec.Cmd, client func() *exec.Cmd) {
	s.t.Helper()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.stop(cmd) })
	for end := time.Now().Add(time.Minute); client().Run() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.stop(cmd)
			s.t.Fatalf("%s does not answer: %s", cmd.Path, &out)
		}
	}
}

// stop ends a server, so that its log is complete.
func (s *servers) stop(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM) // has ended already
	_ = cmd.Wait()
}

func (s *servers) log(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.root, s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// logged is a query in the log of a server.
type logged struct {
	text string
	took time.Duration
}

// compare compares the rows with the log of the server, in the same order. The times are only compared
// with that of a sleep: the server writes its log within what the tool measures.
func compare(t *testing.T, rows []tooltest.Row, log []logged) {
	t.Helper()
	if len(rows) != len(log) {
		t.Fatalf("%d rows, the server logs %d: %v, %v", len(rows), len(log), rows, log)
	}
	for i, l := range log {
		took := time.Duration(rows[i].Num("latency_ns"))
		t.Logf("%-50.50s %10v, server: %10v", l.text, took, l.took)
		if strings.TrimSuffix(rows[i].Str("query"), ";") != strings.TrimSuffix(l.text, ";") {
			t.Errorf("query %q, the server logs %q", rows[i].Str("query"), l.text)
		}
		if strings.Contains(l.text, "sleep") && (took < 20*time.Millisecond || l.took < 20*time.Millisecond) {
			t.Errorf("%s: %v, the server logs %v", l.text, took, l.took)
		}
	}
}

// TestRealPostgres compares the queries with log_min_duration_statement.
func TestRealPostgres(t *testing.T) {
	s := newServers(t, "postgres")
	versions, err := filepath.Glob(s.root + "/usr/lib/postgresql/*/bin")
	if err != nil || len(versions) == 0 {
		t.Fatalf("no PostgreSQL in %s: %v", s.root, err)
	}
	bin := strings.TrimPrefix(versions[0], s.root)
	s.run(bin+"/initdb", "-D", s.dir+"/data", "-A", "trust", "-U", "test", "-c", "dynamic_shared_memory_type=mmap")
	client := func(args ...string) *exec.Cmd {
		return s.command("/usr/bin/psql", append([]string{"-h", s.dir, "-U", "test", "-d", "postgres", "-qAtX"}, args...)...)
	}
	cmd := s.command(bin+"/postgres", "-D", s.dir+"/data", "-k", s.dir, "-c", "listen_addresses=", "-c", "autovacuum=off",
		"-c", "logging_collector=on", "-c", "log_directory="+s.dir, "-c", "log_filename=log", "-c", "log_line_prefix=[%a] ")
	s.start(cmd, func() *exec.Cmd { return client("-c", "select 0") })
	logs := []string{
		"-c", "set log_min_duration_statement = 0", "-c", "set application_name = counted", "-c", "create table t (a int)",
		"-c", "select pg_sleep(0.02)", "-c", "insert into t select 3; select count(*) from t",
		"-c", "select 1/0", "-c", "select nosuch", "-c", "prepare p(int) as select $1 + a from t", "-c", "execute p(4)",
		"-c", "select '" + strings.Repeat("λ", 1000) + "'",
	}
	res := tooltest.JSON(t, Tool, []string{"postgres", "-m", "0", "-x", s.root + bin + "/postgres"}, func() {
		_ = client(logs...).Run() // some of the queries fail
		extended := s.command("/usr/bin/psql", "-h", s.dir, "-U", "test", "-d", "postgres", "-qAtX")
		extended.Stdin = strings.NewReader("set log_min_duration_statement = 0;\nset application_name = counted;\n" +
			"select pg_sleep(0.02), $1 \\bind 5 \\g\nselect 1 / (a - a * $1) from t \\bind 1 \\g\n")
		if out, err := extended.CombinedOutput(); err != nil {
			t.Errorf("psql: %v: %s", err, out)
		}
	})
	s.stop(cmd)
	line := regexp.MustCompile(`\[counted\] LOG:  duration: ([0-9.]+) ms  (?:statement|execute <unnamed>): (.*)`)
	var want []logged
	for _, m := range line.FindAllStringSubmatch(s.log("log"), -1) {
		ms, _ := strconv.ParseFloat(m[1], 64) // digits
		want = append(want, logged{m[2], time.Duration(ms * 1e6)})
	}
	// A query that fails is not logged with a duration. The log starts with a query in each session.
	failed := map[string]bool{}
	rows := res.Where(func(r tooltest.Row) bool {
		text := r.Str("query")
		if r["failed"] == true {
			failed[text] = true
		}
		return r["failed"] == false && !strings.HasPrefix(text, "set log_min") && !strings.HasPrefix(text, "set app")
	})
	for i := 0; i < len(want); {
		if strings.HasPrefix(want[i].text, "set app") {
			want = append(want[:i], want[i+1:]...)
			continue
		}
		i++
	}
	if len(want) < 7 {
		t.Fatalf("log is %s", s.log("log"))
	}
	compare(t, rows, want)
	for _, text := range []string{"select 1/0", "select nosuch", "select 1 / (a - a * $1) from t "} {
		if !failed[text] {
			t.Errorf("no failed query %q in %v", text, failed)
		}
	}
}

// mariadb starts MariaDB with a log of all queries, and returns it and a client.
func (s *servers) mariadb() (server *exec.Cmd, client func(text string) *exec.Cmd) {
	s.t.Helper()
	s.run("/usr/bin/mariadb-install-db", "--no-defaults", "--datadir="+s.dir+"/data", "--user=mysql", "--skip-test-db", "--auth-root-authentication-method=normal")
	client = func(text string) *exec.Cmd {
		return s.command("/usr/bin/mariadb", "--no-defaults", "--socket="+s.dir+"/socket", "-uroot", "-e", text)
	}
	server = s.command("/usr/sbin/mariadbd", "--no-defaults", "--datadir="+s.dir+"/data", "--socket="+s.dir+"/socket", "--skip-networking",
		"--slow-query-log", "--long-query-time=0", "--log-output=FILE", "--slow-query-log-file="+s.dir+"/slow")
	s.start(server, func() *exec.Cmd { return client("select 0") })
	return server, client
}

// TestRealMariaDB compares the queries with the slow query log.
func TestRealMariaDB(t *testing.T) {
	s := newServers(t, "mysql")
	cmd, client := s.mariadb()
	queries := []string{
		"create database d", "create table d.t (a int)", "select sleep(0.02)", "insert into d.t values (3)",
		"set @a = 3", "select '" + strings.Repeat("λ", 1000) + "'", "select count(*) from d.t", "select nosuch",
	}
	before := len(s.log("slow"))
	res := tooltest.JSON(t, Tool, []string{"mysql", "-m", "0", "--pid", fmt.Sprint(cmd.Process.Pid)}, func() {
		_ = client(strings.Join(queries, "; ")).Run() // the last query fails
	})
	s.stop(cmd)
	entry := regexp.MustCompile(`(?s)# Query_time: ([0-9.]+).*?\nSET timestamp=\d+;\n(.*?);\n`)
	var want []logged
	for _, m := range entry.FindAllStringSubmatch(s.log("slow")[before:], -1) {
		seconds, _ := strconv.ParseFloat(m[1], 64) // digits
		want = append(want, logged{m[2], time.Duration(seconds * 1e9)})
	}
	// The client may begin with queries of its own.
	if len(want) < len(queries) {
		t.Fatalf("log is %s", s.log("slow"))
	}
	compare(t, res.Events, want)
}

// session is a connection to MariaDB, for prepared statements of the protocol, which its client does not use.
type session struct {
	*testing.T
	net.Conn
}

func (s *servers) connect() session {
	s.t.Helper()
	conn, err := net.Dial("unix", s.root+s.dir+"/socket")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	c := session{s.t, conn}
	c.read()
	// Protocol 4.1 and its passwords; packets of up to 16 MiB, UTF-8. The password is empty.
	hello := append([]byte{0x01, 0x82, 0x08, 0, 0, 0, 0, 1, 33}, make([]byte, 23)...)
	c.write(1, append(hello, "root\x00\x00mysql_native_password\x00"...))
	if reply := c.read(); reply[0] != 0 {
		s.t.Fatalf("MariaDB answers %q", reply)
	}
	return c
}

func (c session) write(sequence byte, data []byte) {
	c.Helper()
	head := []byte{byte(len(data)), byte(len(data) >> 8), 0, sequence}
	if _, err := c.Write(append(head, data...)); err != nil {
		c.Error(err)
	}
}

func (c session) read() []byte {
	c.Helper()
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil {
		c.Fatal(err)
	}
	data := make([]byte, int(head[0])|int(head[1])<<8)
	if _, err := io.ReadFull(c, data); err != nil || len(data) == 0 {
		c.Fatalf("%v in %q", err, data)
	}
	return data
}

// prepare prepares a statement without results that has one parameter, and returns its ID.
func (c session) prepare(text string) []byte {
	c.Helper()
	c.write(0, append([]byte{comPrepare}, text...))
	reply := c.read()
	if reply[0] != 0 {
		c.Fatalf("prepare %q: %q", text, reply)
	}
	c.read() // the parameter
	c.read() // end
	return reply[1:5]
}

// execute executes a statement, with an integer.
func (c session) execute(id []byte, value byte) {
	c.Helper()
	packet := append([]byte{comExecute}, id...)
	packet = append(packet, 0 /* no cursor */, 1, 0, 0, 0 /* once */, 0 /* not null */, 1 /* types follow */, 1, 0 /* TINY */, value)
	c.write(0, packet)
	if reply := c.read(); reply[0] != 0 {
		c.Errorf("execute: %q", reply)
	}
}

// ping waits until the server has ended the commands of the session: it answers them before.
func (c session) ping() {
	c.Helper()
	c.write(0, []byte{comPing})
	if reply := c.read(); reply[0] != 0 {
		c.Errorf("ping: %q", reply)
	}
}

// TestRealStatements compares prepared statements with the slow query log.
func TestRealStatements(t *testing.T) {
	s := newServers(t, "mysql")
	cmd, client := s.mariadb()
	if out, err := client("create database d; create table d.t (a int)").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	old := s.connect()
	early := old.prepare("insert into d.t values (0 * ?)")
	res := tooltest.JSON(t, Tool, []string{"mysql", "-m", "0", "--pid", fmt.Sprint(cmd.Process.Pid)}, func() {
		one, two := s.connect(), s.connect()
		first := one.prepare("insert into d.t values (?)")
		second := two.prepare("insert into d.t values (1 + ?)") // has the same ID
		one.execute(first, 10)
		two.execute(second, 20)
		third := one.prepare("insert into d.t select ? + 0 * sleep(0.02)")
		one.execute(third, 30)
		one.execute(first, 40)
		old.execute(early, 50)
		early = old.prepare("insert into d.t values (2 + ?)")
		old.execute(early, 60)
		for _, s := range []session{one, two, old} {
			s.ping()
		}
	})
	s.stop(cmd)
	var got []string
	for _, r := range res.Events {
		got = append(got, fmt.Sprintf("%s %v %s", r.Str("command"), r["statement_id"], r.Str("query")))
		if strings.Contains(r.Str("query"), "sleep") && r.Str("command") == "execute" && time.Duration(r.Num("latency_ns")) < 20*time.Millisecond {
			t.Errorf("took less than its sleep: %v", r)
		}
	}
	want := []string{
		"prepare <nil> insert into d.t values (?)", "prepare <nil> insert into d.t values (1 + ?)",
		"execute 1 insert into d.t values (?)", "execute 1 insert into d.t values (1 + ?)",
		"prepare <nil> insert into d.t select ? + 0 * sleep(0.02)", "execute 2 insert into d.t select ? + 0 * sleep(0.02)",
		"execute 1 insert into d.t values (?)", "execute 1 ",
		"prepare <nil> insert into d.t values (2 + ?)", "execute 2 insert into d.t values (2 + ?)",
	}
	slices.Sort(got) // a server answers before a query ends
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	if n := res.Summary.Object("counters").Num("text_unknown"); n != 1 {
		t.Errorf("text_unknown is %v, want 1", n)
	}
	// The server logs the values.
	log := s.log("slow")
	for _, text := range []string{"values (10)", "values (1 + 20)", "select 30 + 0 * sleep", "values (40)", "values (0 * 50)", "values (2 + 60)"} {
		if strings.Count(log, "insert into d.t "+text) != 1 {
			t.Errorf("not once in the log: %q: %s", text, log)
		}
	}
}
