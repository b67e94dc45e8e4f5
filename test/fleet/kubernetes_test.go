package fleet

import (
	"bufio"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// node is a Kubernetes cluster of one node. node.sh describes it.
type node struct {
	t        *testing.T
	cmd      *exec.Cmd
	programs string // directory that is /programs there
}

// startNode starts a cluster with the images test.local/corescope:1 and test.local/work:1.
func startNode(t *testing.T) *node {
	t.Helper()
	kubernetes, root := filepath.Dir(component(t, "fleet/kubernetes/kubelet")), filepath.Dir(filepath.Dir(filepath.Dir(component(t, "fleet-root/usr/bin/containerd"))))
	helm := component(t, "deploy/helm-v4.3.1")
	agent, err := agentProgram()
	if err != nil {
		t.Fatal(err)
	}
	corescope := filepath.Join(filepath.Dir(agent), "corescope")
	n := &node{t: t, programs: t.TempDir()}
	for _, name := range []string{"kubelet", "kube-apiserver", "kube-scheduler", "kube-controller-manager"} {
		n.link(filepath.Join(kubernetes, name), name)
	}
	n.link(helm, "helm")
	n.link(corescope, "kubectl-corescope")
	busybox := filepath.Join(root, "usr/bin/busybox")
	writeImage(t, n.programs+"/pause.tar", "test.local/pause:1", []string{"/bin/sleep", "1000000"}, map[string]string{"bin/sleep": busybox})
	writeImage(t, n.programs+"/work.tar", "test.local/work:1", nil, map[string]string{"bin/sh": busybox, "bin/sleep": busybox, "bin/true": busybox})
	writeImage(t, n.programs+"/corescope.tar", "test.local/corescope:1", nil, map[string]string{"usr/bin/corescope": corescope, "usr/bin/corescope-agent": agent})
	n.writeKeys()
	if err := os.CopyFS(n.programs+"/chart", os.DirFS("../../deploy/helm/corescope")); err != nil {
		t.Fatal(err)
	}

	// The data must be on a disk, where overlayfs can be mounted.
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.MkdirTemp(cache, "corescope-node-")
	if err != nil {
		t.Fatal(err)
	}
	n.cmd = exec.Command("unshare", "--mount", "--net", "--propagation", "private", "./node.sh", root, n.programs, data)
	n.cmd.Stderr = os.Stderr
	end, err := n.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := n.cmd.StdoutPipe()
	if err == nil {
		err = n.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end.Close()
		if err := n.cmd.Wait(); err != nil {
			t.Errorf("node: %v", err)
		}
		// Its mounts ended with its namespace.
		if out, err := exec.Command("rm", "-rf", "--one-file-system", data).CombinedOutput(); err != nil {
			t.Errorf("remove the node's data: %v: %s", err, out)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "ready" {
			go io.Copy(io.Discard, out)
			return n
		}
	}
	t.Fatal("the node is not ready")
	return nil
}

func (n *node) link(path, name string) {
	n.t.Helper()
	if err := os.Link(path, filepath.Join(n.programs, name)); err == nil {
		return
	}
	data, err := os.ReadFile(path) // on another file system
	if err == nil {
		err = os.WriteFile(filepath.Join(n.programs, name), data, 0o700)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// writeKeys writes the keys that sign tokens of service accounts.
func (n *node) writeKeys() {
	n.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		n.t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		n.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"sa.key": {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}, "sa.pub": {Type: "PUBLIC KEY", Bytes: public},
	} {
		if err := os.WriteFile(filepath.Join(n.programs, name), pem.EncodeToMemory(block), 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
}

// command returns a command in the node's namespaces.
func (n *node) command(args ...string) *exec.Cmd {
	inside := []string{"--target", strconv.Itoa(n.cmd.Process.Pid), "--mount", "--net", "--root", "--wd"}
	cmd := exec.Command("nsenter", append(inside, args...)...)
	cmd.Env = append(os.Environ(), "PATH=/programs:/usr/sbin:/usr/bin:/sbin:/bin", "KUBECONFIG=/data/kubeconfig", "HOME=/root", "HELM_CACHE_HOME=/tmp/helm")
	return cmd
}

// in returns the node for a subtest.
func (n *node) in(t *testing.T) *node {
	return &node{t, n.cmd, n.programs}
}

// output runs a command in the node and returns its standard output.
func (n *node) output(stdin string, args ...string) string {
	n.t.Helper()
	cmd := n.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		stderr := []byte{}
		if failed, ok := err.(*exec.ExitError); ok {
			stderr = failed.Stderr
		}
		n.t.Fatalf("%v: %v: %s", args, err, stderr)
	}
	return string(out)
}

const workPods = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  automountServiceAccountToken: false
  containers:
  - {name: app, image: "test.local/work:1", imagePullPolicy: Never, command: [/bin/sh, -c, "while /bin/true; do /bin/sleep 0.1; done"]}
`

// job is a pod that ends at once.
const job = `
apiVersion: v1
kind: Pod
metadata: {name: migration, namespace: shop}
spec:
  automountServiceAccountToken: false
  restartPolicy: Never
  containers:
  - {name: step, image: "test.local/work:1", imagePullPolicy: Never, command: [/bin/sh, -c, "for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done"]}
`

// TestKubernetes installs the chart in a cluster, and expects the names of pods, also of one that has ended,
// in metrics and in the output of kubectl corescope.
func TestKubernetes(t *testing.T) {
	needs(t, "kubernetes", "needs the programs of Kubernetes")
	n := startNode(t)
	n.output("", "helm", "install", "corescope", "/programs/chart", "--namespace", "corescope", "--create-namespace",
		"--set", "image.repository=test.local/corescope", "--set", "image.tag=1", "--set", "image.pullPolicy=Never",
		"--set", "config.interval=1s", "--set", "config.max_cpu=10000%")
	n.output(workPods, "kubectl", "apply", "-f", "-")
	n.output("", "kubectl", "rollout", "status", "daemonset/corescope", "--namespace", "corescope", "--timeout=120s")
	n.output("", "kubectl", "wait", "--for=condition=Ready", "pod/web", "--namespace", "shop", "--timeout=120s")

	t.Cleanup(func() {
		if t.Failed() {
			out, err := n.command("kubectl", "describe", "pods", "--namespace", "corescope").CombinedOutput()
			t.Logf("pods of the agent: %v\n%s", err, out)
		}
	})
	t.Run("plugin", n.testPlugin)
	t.Run("metrics", n.testMetrics)
}

// testPlugin expects rows of all pods, and with --pod only those of one.
func (n *node) testPlugin(t *testing.T) {
	n = n.in(t)
	for _, args := range [][]string{{}, {"--namespace", "shop", "--pod", "web"}, {"--node", "n1"}} {
		args = append(append([]string{"kubectl", "corescope"}, args...), "execsnoop", "--output", "json", "--columns", "+container,pod,namespace", "--limit", "20")
		rows := 0
		for line := range strings.Lines(n.output("", args...)) {
			var row map[string]any
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if row["type"] != "event" {
				continue
			}
			if row["node"] != "n1" {
				t.Errorf("%v: row without its node: %s", args, line)
			}
			if row["pod"] == "web" && row["container"] == "app" && row["namespace"] == "shop" {
				rows++
			} else if args[2] == "--namespace" {
				t.Errorf("%v: row of another pod: %s", args, line)
			}
		}
		if rows == 0 {
			t.Errorf("%v: no rows of the pod", args)
		}
	}
	out, err := n.command("kubectl", "corescope", "--namespace", "shop", "--pod", "nosuch", "execsnoop").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not found") {
		t.Errorf("a pod that does not exist: %v: %s", err, out)
	}
}

// testMetrics runs a pod that ends at once, and expects its execs in the agent's metrics.
func (n *node) testMetrics(t *testing.T) {
	n = n.in(t)
	n.output(job, "kubectl", "apply", "-f", "-")
	address := n.output("", "kubectl", "get", "pods", "--namespace", "corescope", "--output", "jsonpath={.items[0].status.podIP}")
	// The shell, and nine programs that it executes.
	want := `corescope_execsnoop_events_total{container="step",namespace="shop",pod="migration"} 10`
	await(t, want, func() bool {
		text := n.output("", "busybox", "wget", "-q", "-O", "-", fmt.Sprintf("http://%s:9760/metrics", address))
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "corescope_execsnoop_events_total{") {
				t.Log(strings.TrimSpace(line))
			}
		}
		return strings.Contains(text, want+"\n")
	})
}
