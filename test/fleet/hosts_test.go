package fleet

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// sshHosts are servers of OpenSSH on this machine, each with a home directory of its own.
type sshHosts struct {
	t      *testing.T
	dir    string
	config string // of the client
}

// newSSHHosts starts a server for each of these names. A client that uses config also knows the host "dead",
// which refuses connections.
func newSSHHosts(t *testing.T, names ...string) *sshHosts {
	t.Helper()
	h := &sshHosts{t: t, dir: t.TempDir()}
	for _, key := range []string{"client", "server"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(h.dir, key)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	h.config = filepath.Join(h.dir, "config")
	config := fmt.Sprintf("Host *\nHostName 127.0.0.1\nUser root\nIdentityFile %s/client\nIdentitiesOnly yes\nUserKnownHostsFile /dev/null\nStrictHostKeyChecking no\nLogLevel ERROR\n", h.dir)
	for _, name := range append(names, "dead") {
		_, port, _ := net.SplitHostPort(freeAddress(t)) // the address is valid
		config += fmt.Sprintf("Host %s\nPort %s\n", name, port)
		if name != "dead" {
			h.start(name, port)
		}
	}
	h.write("config", config)
	return h
}

func (h *sshHosts) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// home is the home directory of root on a host.
func (h *sshHosts) home(name string) string { return filepath.Join(h.dir, "home-"+name) }

// start starts a server. It has a file passwd of its own, with the user that the server needs, in a mount
// namespace of its own.
func (h *sshHosts) start(name, port string) {
	h.t.Helper()
	program := component(h.t, "fleet/openssh-server/usr/sbin/sshd")
	libraries, _ := filepath.Glob(component(h.t, "fleet/libwrap0") + "/usr/lib/*") // the pattern is valid
	if err := os.Mkdir(h.home(name), 0o700); err != nil {
		h.t.Fatal(err)
	}
	h.write("passwd-"+name, "root:x:0:0::"+h.home(name)+":/bin/sh\nsshd:x:65534:65534::/:/bin/false\n")
	h.write("sshd-"+name, fmt.Sprintf("ListenAddress 127.0.0.1:%s\nHostKey %s/server\nAuthorizedKeysFile %s/client.pub\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\n", port, h.dir, h.dir))
	script := `mount --bind "$1/passwd-$2" /etc/passwd && mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec "$3" -D -e -f "$1/sshd-$2"`
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", h.dir, name, program)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() // it was killed
		if h.t.Failed() {
			h.t.Logf("sshd of %s printed:\n%s", name, &log)
		}
	})
	await(h.t, "sshd of "+name, func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// tools returns the processes on a host that run the program that corescope has copied there.
func (h *sshHosts) tools(name string) (pids []string) {
	h.t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is valid
	for _, link := range all {
		if path, err := os.Readlink(link); err == nil && strings.HasPrefix(path, h.home(name)+"/.cache/corescope/") {
			pids = append(pids, filepath.Base(filepath.Dir(link)))
		}
	}
	return pids
}

// merged is the output of a tool on several hosts.
type merged struct {
	mutex sync.Mutex
	ready []string            // hosts
	pids  map[string][]string // of rows, by host
	bad   []string            // lines that are no objects
}

// read reads the output to its end.
func (m *merged) read(lines *bufio.Scanner) {
	for lines.Scan() {
		var row struct {
			Host, Type string
			PID        json.Number
		}
		err := json.Unmarshal(lines.Bytes(), &row)
		m.mutex.Lock()
		switch {
		case err != nil || row.Host == "" || row.Type == "invalid":
			m.bad = append(m.bad, lines.Text())
		case row.Type == "ready":
			m.ready = append(m.ready, row.Host)
		case row.Type == "event":
			m.pids[row.Host] = append(m.pids[row.Host], row.PID.String())
		}
		m.mutex.Unlock()
	}
}

func (m *merged) rows(host string) int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return len(m.pids[host])
}

// TestHosts runs a tool on two hosts and on one that is dead. Each of the two has a row for each exec, in this
// order, a broken connection is reported while the other host continues, and nothing runs afterwards.
func TestHosts(t *testing.T) {
	needs(t, "hosts", "needs a server of OpenSSH")
	agent, err := agentProgram()
	if err != nil {
		t.Fatal(err)
	}
	hosts := newSSHHosts(t, "one", "two")
	cmd := exec.Command(filepath.Join(filepath.Dir(agent), "corescope"), "--host", "one,two,dead", "execsnoop", "--comm", workloadName, "--output", "json")
	cmd.Env = append(os.Environ(), "CORESCOPE_SSH=ssh -F "+hosts.config)
	errOut, err := os.Create(filepath.Join(hosts.dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer errOut.Close()
	cmd.Stderr = errOut
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	result, done := &merged{pids: map[string][]string{}}, make(chan bool)
	go func() {
		result.read(bufio.NewScanner(out))
		close(done)
	}()
	messages := func() string {
		text, err := os.ReadFile(errOut.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() // if the test ended early
		if t.Failed() {
			t.Logf("corescope reported:\n%s", messages())
		}
	})
	await(t, "both hosts to be ready", func() bool {
		result.mutex.Lock()
		defer result.mutex.Unlock()
		return len(result.ready) == 2
	})
	path := filepath.Join(hosts.dir, workloadName)
	data, err := os.ReadFile("/bin/true")
	if err == nil {
		err = os.WriteFile(path, data, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	execute := func(n int) {
		t.Helper()
		for range n {
			run := exec.Command(path)
			if err := run.Run(); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, fmt.Sprint(run.Process.Pid))
		}
	}
	execute(10)
	await(t, "10 rows of each host", func() bool { return result.rows("one") >= 10 && result.rows("two") >= 10 })
	before := len(pids)

	kill(t, clientOf(t, cmd.Process.Pid, "two"))
	await(t, "the report of the broken connection", func() bool {
		return strings.Contains(messages(), "two: the connection ended before the tool, rows can be missing")
	})
	await(t, "the end of the tool on host two", func() bool { return len(hosts.tools("two")) == 0 })
	execute(5)
	await(t, "15 rows of host one", func() bool { return result.rows("one") >= 15 })
	if len(hosts.tools("one")) == 0 {
		t.Error("the tool on host one is not the program that was copied")
	}
	cmd.Process.Signal(unix.SIGINT)
	<-done
	cmd.Wait() // the exit code is checked
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1: two hosts failed", code)
	}
	await(t, "the end of the tool on host one", func() bool { return len(hosts.tools("one")) == 0 })

	if !slices.Equal(result.pids["one"], pids) || !slices.Equal(result.pids["two"], pids[:before]) {
		t.Errorf("rows of %v, want those of %v and the first %d of them", result.pids, pids, before)
	}
	if len(result.bad) > 0 {
		t.Errorf("lines that are no rows: %q", result.bad)
	}
	if text := messages(); !strings.Contains(text, "dead: ") || !strings.Contains(text, "Connection refused") {
		t.Error("the dead host is not reported with its reason")
	}
}

// clientOf returns the process ID of the ssh that corescope has started for a host.
func clientOf(t *testing.T, corescope int, host string) (pid int) {
	t.Helper()
	var children []byte
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", corescope)) // the pattern is valid
	for _, file := range all {
		if text, err := os.ReadFile(file); err == nil {
			children = append(append(children, ' '), text...)
		}
	}
	for _, child := range strings.Fields(string(children)) {
		line, err := os.ReadFile("/proc/" + child + "/cmdline")
		if err == nil && bytes.Contains(line, []byte("\x00--\x00"+host+"\x00")) {
			fmt.Sscan(child, &pid)
			return pid
		}
	}
	t.Fatalf("no ssh for host %s runs", host)
	return 0
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
