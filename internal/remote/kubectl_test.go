package remote

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/output"
)

// cluster is the answer of kubectl about the pods of the DaemonSet: two run, one is pending.
const cluster = `{"items":[
{"metadata":{"name":"agent-a","namespace":"tools"},"spec":{"nodeName":"n1"},"status":{"phase":"Running"}},
{"metadata":{"name":"agent-b","namespace":"tools"},"spec":{"nodeName":"node2"},"status":{"phase":"Running"}},
{"metadata":{"name":"agent-c","namespace":"tools"},"spec":{"nodeName":"n3"},"status":{"phase":"Pending"}}]}`

// web is the answer about a pod with two containers, of which the second one has not started.
const web = `{"metadata":{"name":"web","namespace":"shop"},"spec":{"nodeName":"node2","containers":[{"name":"app"},{"name":"proxy"}]},
"status":{"phase":"Running","containerStatuses":[{"name":"app","containerID":"containerd://0123abc"},{"name":"proxy"}]}}`

// fakeKubectl sets CORESCOPE_KUBECTL to a program that answers as above and runs the test program for
// corescope. It writes its arguments to the returned file.
func fakeKubectl(t *testing.T) (log string) {
	t.Helper()
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := `#!/bin/sh
echo "$*" >>` + dir + `/log
case "$*" in
*"get --output json pods --all-namespaces --selector "*) cat ` + dir + `/cluster;;
*"get --output json pod web --namespace shop") cat ` + dir + `/web;;
*"get --output json pod "*) echo 'Error from server (NotFound): pods not found' >&2; exit 1;;
*" exec "*"--namespace tools agent-b "*" version") echo "corescope other";;
*" exec "*" version") echo "corescope devel";;
*" exec "*) while [ "$1" != -- ]; do shift; done; shift 2; exec "` + exe + `" "$@";;
*) exit 9;;
esac
`
	for name, text := range map[string]string{"kubectl": script, "cluster": cluster, "web": web} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CORESCOPE_KUBECTL", filepath.Join(dir, "kubectl"))
	return filepath.Join(dir, "log")
}

// TestKubectlTimeout checks that a cluster that does not answer ends with an error, although a child of
// kubectl keeps its output open, and that the message for a missing kubectl says what to do.
func TestKubectlTimeout(t *testing.T) {
	silent := filepath.Join(t.TempDir(), "kubectl")
	if err := os.WriteFile(silent, []byte("#!/bin/sh\nsleep 5 & wait\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{silent: "no answer within 10ms", silent + "-missing": "CORESCOPE_KUBECTL"} {
		t.Setenv("CORESCOPE_KUBECTL", command)
		k := &Kubectl{Timeout: 10 * time.Millisecond}
		if _, err := k.Nodes(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestKubectl(t *testing.T) {
	log := fakeKubectl(t)
	k := &Kubectl{Flags: []string{"--context=test"}}
	nodes, err := k.Nodes(t.Context(), nil)
	if err != nil || strings.Join(nodes, " ") != "n1 n3 node2" {
		t.Fatalf("nodes %q, %v", nodes, err)
	}
	out, errOut, code := runOver(t, k, "node", 5, output.Text, nodes, "10", "20")
	if !strings.HasPrefix(out, "NODE  NAME\n") || strings.Count(out, "n1    row ") != 3 || strings.Count(out, "node2 row ") != 3 {
		t.Errorf("output %q", out)
	}
	for _, want := range []string{
		"node2: the pod has corescope other, this is corescope devel: flags and columns can differ\n",
		"n3: no running pod of corescope's DaemonSet: pod agent-c in namespace tools is Pending\n",
	} {
		if !strings.Contains(errOut, want) {
			t.Errorf("errors %q lack %q", errOut, want)
		}
	}
	if code != 1 || strings.Count(errOut, "\n") != 2 {
		t.Errorf("errors %q, exit code %d", errOut, code)
	}
	text, err := os.ReadFile(log)
	if err != nil || strings.Count(string(text), "--context=test ") != bytes.Count(text, []byte("\n")) {
		t.Errorf("%v: not all commands have the flags: %s", err, text)
	}
	out, _, _ = runOver(t, k, "node", 1, output.JSON, nodes[:1], "json", "10")
	if !strings.HasPrefix(out, `{"node":"n1","type":"event",`) {
		t.Errorf("JSON %q", out)
	}
}

func TestNodes(t *testing.T) {
	fakeKubectl(t)
	k := &Kubectl{}
	if nodes, err := k.Nodes(t.Context(), []string{"node2"}); err != nil || strings.Join(nodes, " ") != "node2" {
		t.Errorf("%q, %v", nodes, err)
	}
	if _, err := k.Nodes(t.Context(), []string{"node2", "n3"}); !errors.Is(err, ErrNoAgent) || !strings.Contains(err.Error(), "n3") {
		t.Errorf("pod that does not run: %v", err)
	}
}

func TestContainer(t *testing.T) {
	fakeKubectl(t)
	k := &Kubectl{}
	if node, id, err := k.Container(t.Context(), "shop", "web:app"); err != nil || node != "node2" || id != "0123abc" {
		t.Errorf("%q, %q, %v", node, id, err)
	}
	for name, want := range map[string]string{
		"web":       "pod web has the containers app, proxy: name one of them, as web:app",
		"web:none":  "pod web has the containers app, proxy",
		"web:proxy": "container proxy of pod web has not started",
		"gone":      "Error from server (NotFound): pods not found",
		"-oyaml":    `"-oyaml" is not the name of a pod`,
	} {
		if _, _, err := k.Container(t.Context(), "shop", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
