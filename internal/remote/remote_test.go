package remote

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/output"
)

// TestMain is also the tool that the tests run on hosts: it is the program that a Run copies.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == Verb && os.Args[2] == "testtool" {
		os.Exit(Serve(context.Background(), os.Stdout, func(ctx context.Context) int { return testTool(ctx, os.Args[3:]) }))
	}
	os.Exit(m.Run())
}

// testTool writes a row at each of the given times, in seconds, or in JSON if the first word is "json". It
// then waits for the end, and ends with a last row. With "fail", it ends at once with exit code 4, with "die"
// without one.
func testTool(ctx context.Context, words []string) int {
	if words[0] == "die" {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	if words[0] == "fail" {
		fmt.Fprintln(os.Stderr, "testtool: \x1b[31mnot supported")
		return 4
	}
	row := func(t string) { fmt.Printf("%s%s000000000%srow %s\n", output.StampBegin, t, output.StampEnd, t) }
	if words[0] == "json" {
		row = func(t string) { fmt.Printf(`{"type":"event","time":"1970-01-01T00:00:%sZ","a":[1]}`+"\n", t) }
		words = words[1:]
	} else {
		fmt.Println(output.HeaderMark + "NAME")
	}
	for _, t := range words {
		row(t)
	}
	<-ctx.Done()
	row("59")
	return 0
}

// fakeSSH sets CORESCOPE_SSH to a program that runs scripts on this machine, with a home directory for each
// host. The host "dead" refuses connections. The arguments of a host are in the file HOST.args, in place of
// those of the Run.
func fakeSSH(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
while [ "$1" != -- ]; do shift; done
[ "$2" = dead ] && { echo "ssh: connect to host dead: Connection refused" >&2; exit 255; }
echo "$3" >>` + dir + `/$2.scripts
mkdir -p "` + dir + `/$2"
HOME="` + dir + `/$2" exec sh -c "$3"
`
	path := filepath.Join(dir, "ssh")
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CORESCOPE_SSH", path)
	return dir
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mutex sync.Mutex
	b     bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.b.String()
}

// run runs the test tool on hosts until the output has this number of lines, and stops it.
func run(t *testing.T, lines int, format output.Format, hosts []string, args ...string) (out, errOut string, code int) {
	t.Helper()
	return runOver(t, SSH{}, "host", lines, format, hosts, args...)
}

func runOver(t *testing.T, transport Transport, label string, lines int, format output.Format, hosts []string, args ...string) (out, errOut string, code int) {
	t.Helper()
	var stdout, stderr lockedBuffer
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan bool)
	go func() {
		defer stop()
		for end := time.Now().Add(time.Minute); strings.Count(stdout.String(), "\n") < lines && time.Now().Before(end); {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	r := &Run{Hosts: hosts, Transport: transport, Label: label, Tool: "testtool", Args: args, Format: format, Version: "devel", Out: &stdout, ErrOut: &stderr}
	code, err := r.Do(ctx)
	close(done)
	if err != nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), code
}

func TestText(t *testing.T) {
	needsRoot(t)
	dir := fakeSSH(t)
	out, errOut, code := run(t, 7, output.Text, []string{"a", "host2"}, "10", "20", "30")
	const want = "HOST  NAME\n"
	if !strings.HasPrefix(out, want) || strings.Count(out, "NAME") != 1 {
		t.Errorf("output %q, want it to begin with %q and to have one header", out, want)
	}
	rows := strings.Split(strings.TrimSpace(strings.TrimPrefix(out, want)), "\n")
	times := make([]string, len(rows))
	for i, row := range rows {
		times[i] = row[len(row)-2:]
	}
	if got := strings.Join(times, " "); got != "10 10 20 20 30 30 59 59" {
		t.Errorf("times %s are not in order or not complete: %q", got, out)
	}
	for _, want := range []string{"a     row 10\n", "host2 row 30\n", "a     row 59\n", "host2 row 59\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("output %q lacks %q", out, want)
		}
	}
	if errOut != "" || code != 0 {
		t.Errorf("errors %q, exit code %d", errOut, code)
	}
	scripts, err := os.ReadFile(filepath.Join(dir, "a.scripts"))
	if err != nil || !strings.Contains(string(scripts), "cat >") {
		t.Errorf("the program was not copied: %v", err)
	}
	if _, _, code := run(t, 2, output.Text, []string{"a"}, "10"); code != 0 {
		t.Errorf("second run: exit code %d", code)
	}
	if scripts, _ = os.ReadFile(filepath.Join(dir, "a.scripts")); strings.Count(string(scripts), "mktemp") != 1 {
		t.Errorf("the program was copied again: %s", scripts)
	}
}

func TestJSON(t *testing.T) {
	needsRoot(t)
	fakeSSH(t)
	out, _, _ := run(t, 4, output.JSON, []string{"a", "b"}, "json", "10", "20")
	var got []string
	for line := range strings.Lines(out) {
		if !strings.Contains(line, `,"type":"event","time":"1970-01-01T00:00:`) || !strings.HasSuffix(line, "\"a\":[1]}\n") {
			t.Errorf("line %q", line)
		}
		got = append(got, line[:11])
	}
	slices.Sort(got)
	if want := `{"host":"a" {"host":"a" {"host":"a" {"host":"b" {"host":"b" {"host":"b"`; strings.Join(got, " ") != want {
		t.Errorf("got %q", got)
	}
}

// TestFailures expects the output of a host that works beside one that refuses connections and one whose
// tool fails.
func TestFailures(t *testing.T) {
	needsRoot(t)
	fakeSSH(t)
	out, errOut, code := run(t, 3, output.Text, []string{"dead", "a"}, "10", "20")
	if !strings.Contains(out, "a    row 59\n") || code != 1 {
		t.Errorf("output %q, exit code %d", out, code)
	}
	for _, want := range []string{"dead: ssh: connect to host dead: Connection refused\n", "dead: log in: exit status 255\n"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("errors %q lack %q", errOut, want)
		}
	}
	_, errOut, code = run(t, 1, output.Text, []string{"a", "b"}, "fail")
	if code != 4 || !strings.Contains(errOut, "a: testtool: \\x1b[31mnot supported\n") {
		t.Errorf("exit code %d, errors %q", code, errOut)
	}
	_, errOut, code = run(t, 1, output.Text, []string{"a"}, "die")
	if code != 1 || !strings.Contains(errOut, "a: the connection ended before the tool, rows can be missing: ssh: signal: killed\n") {
		t.Errorf("exit code %d, errors %q", code, errOut)
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: on a host, the tool runs as root, by sudo for other users")
	}
}

func TestMerge(t *testing.T) {
	now := time.Unix(100, 0)
	m := newMerger(2, time.Second)
	text := func(units []unit) string {
		var all []string
		for _, u := range units {
			all = append(all, string(u.text))
		}
		return strings.Join(all, " ")
	}
	add := func(host int, t int64, s string) { m.add(unit{host, t, now, []byte(s)}) }
	add(0, 10, "a10")
	add(0, 30, "a30")
	if got := text(m.due(now)); got != "" {
		t.Errorf("due before the other host delivered: %q", got)
	}
	add(1, 20, "b20")
	add(1, 0, "b20more")
	if got := text(m.due(now)); got != "a10 b20 b20more" {
		t.Errorf("due: %q", got)
	}
	if got := text(m.due(now.Add(time.Second))); got != "a30" {
		t.Errorf("due after the delay: %q", got)
	}
	add(1, 25, "b25")
	m.end(0)
	if got := text(m.due(now)); got != "b25" {
		t.Errorf("due after the end of the other host: %q", got)
	}
}

func TestNames(t *testing.T) {
	if got, err := Names("a,root@b.example,c"); err != nil || len(got) != 3 {
		t.Errorf("%q, %v", got, err)
	}
	for _, list := range []string{"", "a,", "-oProxyCommand=x", "a,a", "a b", "a\nb"} {
		if got, err := Names(list); err == nil {
			t.Errorf("%q: accepted as %q", list, got)
		}
	}
}

func TestQuote(t *testing.T) {
	if got := quote("a'b $c"); got != `'a'\''b $c'` {
		t.Errorf("got %s", got)
	}
}
