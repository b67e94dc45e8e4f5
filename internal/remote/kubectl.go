package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Kubectl runs the program in the pods of the DaemonSet, one on each node, through kubectl exec.
type Kubectl struct {
	// Flags are flags of kubectl: the cluster and the user.
	Flags []string
	// Timeout limits requests with a short answer. The default is 30 s: a cluster or node that is not
	// reachable must not delay the others without a message.
	Timeout time.Duration

	pods map[string]pod // by node
}

// agentLabels select the pods of the DaemonSet, in any namespace.
const agentLabels = "app.kubernetes.io/name=corescope,app.kubernetes.io/component=agent"

// pod is what is used of a pod in the answers of kubectl.
type pod struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		NodeName   string `json:"nodeName"`
		Containers []struct {
			Name string `json:"name"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase             string `json:"phase"`
		ContainerStatuses []struct {
			Name        string `json:"name"`
			ContainerID string `json:"containerID"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

func (p pod) isRunning() bool { return p.Status.Phase == "Running" }

// command returns a command of kubectl: CORESCOPE_KUBECTL with its options, such as "kubectl --as NAME".
func (k *Kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	words := slices.Concat(strings.Fields(cmp.Or(os.Getenv("CORESCOPE_KUBECTL"), "kubectl")), k.Flags, args)
	return detached(exec.CommandContext(ctx, words[0], words[1:]...))
}

// answer returns what a command prints within the timeout.
func (k *Kubectl) answer(ctx context.Context, command func(context.Context) *exec.Cmd) ([]byte, error) {
	timeout := cmp.Or(k.Timeout, 30*time.Second)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	cmd := command(ctx)
	cmd.WaitDelay = time.Second // a program that provides credentials can keep the pipe open
	text, err := cmd.Output()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return text, err
}

func (k *Kubectl) get(ctx context.Context, answer any, args ...string) error {
	var stderr bytes.Buffer
	text, err := k.answer(ctx, func(ctx context.Context) *exec.Cmd {
		cmd := k.command(ctx, append([]string{"get", "--output", "json"}, args...)...)
		cmd.Stderr = &stderr
		return cmd
	})
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("run kubectl: %w (install it, or name it in CORESCOPE_KUBECTL)", err)
	}
	if err != nil {
		return fmt.Errorf("run kubectl get %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("decode the answer of kubectl get %s: %w", args[0], err)
	}
	return nil
}

// ErrNoAgent is returned if no pod of the DaemonSet runs on the nodes.
var ErrNoAgent = errors.New("no running pod of corescope's DaemonSet")

// Nodes returns the nodes with a pod of the DaemonSet, sorted. A Run reports those whose pod does not run. If
// only is not empty, it returns these. It returns ErrNoAgent if one of them, or all nodes, lack a running pod.
func (k *Kubectl) Nodes(ctx context.Context, only []string) ([]string, error) {
	var list struct {
		Items []pod `json:"items"`
	}
	if err := k.get(ctx, &list, "pods", "--all-namespaces", "--selector", agentLabels); err != nil {
		return nil, err
	}
	k.pods = map[string]pod{}
	running := 0
	for _, p := range list.Items {
		node := cmp.Or(p.Spec.NodeName, p.Metadata.Name) // a pod that is not scheduled has no node
		if k.pods[node].isRunning() || len(only) > 0 && !(p.isRunning() && slices.Contains(only, node)) {
			continue
		}
		k.pods[node] = p
		if p.isRunning() {
			running++
		}
	}
	for _, node := range only {
		if _, ok := k.pods[node]; !ok {
			return nil, fmt.Errorf("%w on node %s (kubectl get pods -A -l %s)", ErrNoAgent, node, agentLabels)
		}
	}
	if running == 0 {
		return nil, fmt.Errorf("%w in this cluster: install the chart first", ErrNoAgent)
	}
	return slices.Sorted(maps.Keys(k.pods)), nil
}

// Container returns the node and the ID of a container of a pod, "POD" or "POD:CONTAINER". An empty
// namespace is that of kubectl's context.
func (k *Kubectl) Container(ctx context.Context, namespace, name string) (node, id string, err error) {
	name, container, _ := strings.Cut(name, ":")
	if name == "" || strings.HasPrefix(name, "-") {
		return "", "", fmt.Errorf("%q is not the name of a pod", name)
	}
	args := []string{"pod", name}
	if namespace != "" {
		args = append(args, "--namespace", namespace)
	}
	var p pod
	if err := k.get(ctx, &p, args...); err != nil {
		return "", "", err
	}
	var names []string
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	if container == "" && len(names) == 1 {
		container = names[0]
	}
	if container == "" || !slices.Contains(names, container) {
		return "", "", fmt.Errorf("pod %s has the containers %s: name one of them, as %s:%s", name, strings.Join(names, ", "), name, names[0])
	}
	for _, s := range p.Status.ContainerStatuses {
		if _, id, ok := strings.Cut(s.ContainerID, "://"); ok && s.Name == container {
			return p.Spec.NodeName, id, nil
		}
	}
	return "", "", fmt.Errorf("container %s of pod %s has not started", container, name)
}

// prepare implements Transport. The image of the pod contains the program.
func (k *Kubectl) prepare(ctx context.Context, node string, p *program, errOut io.Writer) (starter, error) {
	if agent := k.pods[node]; !agent.isRunning() {
		return nil, fmt.Errorf("%w: pod %s in namespace %s is %s", ErrNoAgent, agent.Metadata.Name, agent.Metadata.Namespace, agent.Status.Phase)
	}
	version, err := k.answer(ctx, func(ctx context.Context) *exec.Cmd { return k.exec(ctx, node, errOut, "version") })
	if err != nil {
		return nil, fmt.Errorf("run corescope in its pod: %w", err)
	}
	if got := strings.TrimSpace(string(version)); got != "corescope "+p.version {
		fmt.Fprintf(errOut, "the pod has %s, this is corescope %s: flags and columns can differ\n", got, p.version)
	}
	return func(ctx context.Context, args []string) *exec.Cmd {
		return k.exec(ctx, node, errOut, append([]string{Verb}, args...)...)
	}, nil
}

// exec returns a command that runs the program on a node.
func (k *Kubectl) exec(ctx context.Context, node string, errOut io.Writer, args ...string) *exec.Cmd {
	p := k.pods[node]
	cmd := k.command(ctx, append([]string{"exec", "--stdin", "--quiet", "--namespace", p.Metadata.Namespace, p.Metadata.Name,
		"--container", "agent", "--", "/usr/bin/corescope"}, args...)...)
	cmd.Stderr = errOut
	return cmd
}
