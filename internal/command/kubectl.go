package command

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/remote"
)

// kubectlPlugin is the name of the program that kubectl runs for "kubectl corescope".
const kubectlPlugin = "kubectl-corescope"

func isKubectlPlugin(path string) bool { return filepath.Base(path) == kubectlPlugin }

const kubectlUsage = `Usage: kubectl corescope [flags] TOOL [flags of the tool]

Run a tool on the nodes of a cluster, in the pods of corescope's DaemonSet, and merge the output by time.

Flags:
      --node NODE,...          only these nodes
      --pod POD[:CONTAINER]    only the tasks of this container, on its node
  -n, --namespace NAME         namespace of the pod
      --context NAME           context of the kubeconfig file
      --kubeconfig FILE        kubeconfig file

Examples:
  kubectl corescope execsnoop                          # on all nodes
  kubectl corescope --node n1,n2 biolatency 10 1       # disk latency of two nodes
  kubectl corescope -n shop --pod web-7d4b9 tcplife    # connections of a pod
`

// kubectlOptions are the flags of the plugin.
type kubectlOptions struct {
	nodes, pod, namespace string
	passed                []string // flags of kubectl
}

// kubectl runs a tool on the nodes of a Kubernetes cluster. args are the words after "kubectl corescope".
func (c *Command) kubectl(ctx context.Context, args []string) error {
	o, words, err := kubectlFlags(args)
	if err != nil {
		return err
	}
	if len(words) == 0 {
		fmt.Fprint(c.Out, kubectlUsage)
		return nil
	}
	if _, err := c.toolOf(words); err != nil {
		return err
	}
	var nodes, filter []string
	if o.nodes != "" {
		if nodes, err = remote.Names(o.nodes); err != nil {
			return fmt.Errorf("%w: --node: %w", flags.ErrUsage, err)
		}
	}
	k := &remote.Kubectl{Flags: o.passed}
	if o.pod != "" {
		node, id, err := k.Container(ctx, o.namespace, o.pod)
		if err != nil {
			return fmt.Errorf("--pod: %w", err)
		}
		nodes, filter = []string{node}, []string{"--container", id}
	}
	if nodes, err = k.Nodes(ctx, nodes); err != nil {
		return err
	}
	return c.runOn(ctx, remote.Run{Hosts: nodes, Transport: k, Label: "node", Args: filter}, words)
}

// kubectlFlags parses the flags before the name of the tool. As those of tools, they can be repeated only if they
// are lists, or with the same value.
func kubectlFlags(args []string) (o kubectlOptions, words []string, err error) {
	given := map[string]string{}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if args[0] == "-h" || args[0] == "--help" {
			return kubectlOptions{}, nil, nil
		}
		name, value, hasValue := strings.Cut(args[0], "=")
		args = args[1:]
		if !hasValue {
			if len(args) == 0 {
				return o, nil, fmt.Errorf("%w: %s needs a value", flags.ErrUsage, name)
			}
			value, args = args[0], args[1:]
		}
		if name == "-n" {
			name = "--namespace"
		}
		before, isRepeated := given[name]
		given[name] = value
		switch {
		case !isRepeated:
		case name == "--node":
			value = before + "," + value
			given[name] = value
		case before != value:
			return o, nil, fmt.Errorf("%w: %s %s: it takes one value and was given before as %q: give it once", flags.ErrUsage, name, value, before)
		}
		switch name {
		case "--node":
			o.nodes = value
		case "--pod":
			o.pod = value
		case "--namespace":
			o.namespace = value
		case "--context", "--kubeconfig":
			o.passed = append(o.passed, name+"="+value)
		default:
			return o, nil, fmt.Errorf("%w: unknown flag %s before the name of the tool (kubectl corescope --help lists them)", flags.ErrUsage, name)
		}
	}
	if o.nodes != "" && o.pod != "" {
		return o, nil, fmt.Errorf("%w: --node and --pod cannot be combined", flags.ErrUsage)
	}
	return o, args, nil
}
