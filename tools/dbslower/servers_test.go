package dbslower

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// TestRealMariaDB compares the queries with the slow query log.
func TestRealMariaDB(t *testing.T) {
	s := newServers(t, "mysql")
	s.run("/usr/bin/mariadb-install-db", "--no-defaults", "--datadir="+s.dir+"/data", "--user=mysql", "--skip-test-db", "--auth-root-authentication-method=normal")
	client := func(text string) *exec.Cmd {
		return s.command("/usr/bin/mariadb", "--no-defaults", "--socket="+s.dir+"/socket", "-uroot", "-e", text)
	}
	cmd := s.command("/usr/sbin/mariadbd", "--no-defaults", "--datadir="+s.dir+"/data", "--socket="+s.dir+"/socket", "--skip-networking",
		"--slow-query-log", "--long-query-time=0", "--log-output=FILE", "--slow-query-log-file="+s.dir+"/slow")
	s.start(cmd, func() *exec.Cmd { return client("select 0") })
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
