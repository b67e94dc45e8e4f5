// Package seccompprofile writes seccomp profiles of the system calls that are made.
package seccompprofile

import (
	"fmt"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh seccompprofile.bpf.c

type options struct {
	File    string   `pos:"file" flag:"write,w" arg:"FILE" help:"write the profile to this file at the end of the run" unset:"none is written by default"`
	Add     []string `flag:"add" arg:"CALL" help:"add these system calls to the profile, by name"`
	Runtime bool     `flag:"runtime" help:"also allow the calls that runc and crun make after they activate the filter, until the program starts"`
	Exec    string   `flag:"exec" arg:"COMMAND" help:"run this command, with a shell if it contains shell syntax, and observe all its processes until it ends; its output goes to standard error"`
	source.Ranking
}

// key mirrors struct table_key, counts struct table_value.
type key struct{ NR, ABI uint32 }
type counts struct{ Count uint64 }

type row struct {
	Syscall string `json:"syscall" col:"SYSCALL,width=22" help:"name of the system call, or [N] for a number without a name, which is not a part of the profile"`
	ABI     string `json:"abi" col:"ABI,width=6" help:"ABI of the call: native, compat (32-bit task) or x32"`
	Count   uint64 `json:"count" col:"COUNT,width=10,right" help:"calls that were entered during the run"`
}

// Tool is the definition of seccompprofile.
var Tool = tool.Define(tool.Spec{
	Name:     "seccompprofile",
	Category: "process",
	Summary:  "Write a seccomp profile (for runc, Docker, Podman, Kubernetes) of the system calls that a container or command makes",
	Description: `Records which system calls the selected tasks make, and writes a seccomp profile that allows these calls, in the JSON format of runc, containerd, CRI-O, Docker, Podman and Kubernetes. Select the tasks with --container, --cgroup, --pid or --exec; without any, the profile is that of the whole machine. Each call is also shown with its number of calls.

The file is written when the run ends. A second rule allows the calls that a runtime makes itself after it has activated the filter: without them, runc cannot start the program. They are those of runc and crun, such as setuid, capset and openat; --runtime=false omits them, except for execve, which starts the program. With no_new_privs (allowPrivilegeEscalation: false in Kubernetes, --security-opt no-new-privileges in Docker), a runtime makes fewer of them. The default action of the profile is SCMP_ACT_ERRNO. Its architectures are those of the calls that were made: 32-bit tasks need SCMP_ARCH_X86 or SCMP_ARCH_ARM. Names apply to all of them. Arguments of calls are not restricted.

A profile contains only calls that were made during the run. Missing are those before the tool started, such as at the start of a container or a process that runs already, and those in code that did not run, such as the handling of errors. So start the tool first: select a cgroup in which the container will be created, or use --exec, and exercise the whole program. Another runtime can make other calls itself: test the profile, and add calls with --add. Calls that an active seccomp filter refuses do not reach the hook (raw_syscalls:sys_enter) and are missing too, so record without a filter.

If events were lost, the profile can be incomplete: that is reported, and noted in the comment of the profile. If no call was observed, nothing is written.`,
	Peers: []string{
		"Inspektor Gadget: this is its advise_seccomp gadget. It writes one profile per container; this tool writes one for the selected tasks.",
		"Calls of 32-bit and x32 tasks are included under their own names, with their architectures.",
	},
	Examples: []string{
		"seccompprofile --container web web.json      # until Ctrl-C",
		"seccompprofile --exec './server --selftest' server.json # a command and its children",
		"seccompprofile --cgroup /sys/fs/cgroup/system.slice/app.service app.json --duration 10m # a service, for ten minutes",
		"seccompprofile --pid 1234 --add rt_sigreturn,restart_syscall -w out.json # one process, and two more calls",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Runtime: true, Ranking: source.Ranking{Sort: "count"}}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	names, p := value.NewSyscalls(), newProfile()
	p.add(value.ABINative, "execve")
	for _, name := range o.Add {
		if _, ok := names.Number(value.ABINative, name); !ok {
			return nil, fmt.Errorf("--add: unknown system call %q (syscount --list prints all names)", name)
		}
		p.add(value.ABINative, name)
	}
	if o.Runtime {
		for _, name := range runtimeCalls() {
			if _, ok := names.Number(value.ABINative, name); ok {
				p.runtime = append(p.runtime, name)
			}
		}
	}
	plan := tool.Plan{Exec: o.Exec, RowNoun: "call"}
	if o.File != "" {
		plan.Resolve = func(*tool.Plan, *tool.Kernel) error { return p.open(o.File) }
		plan.Finish = p.write
	}
	return &source.Table[key, counts, row]{
		Plan:    plan,
		Ranking: o.Ranking,
		Columns: []string{"syscall", "abi", "count"},
		Label: func(k *key, _ *counts) row {
			abi := value.ABI(k.ABI)
			r := row{Syscall: names.Name(abi, k.NR), ABI: [...]string{"native", "compat", "x32"}[k.ABI%3]}
			p.observe(abi, r.Syscall)
			return r
		},
		Fill: func(r *row, c *counts, _ time.Duration) { r.Count = c.Count },
	}, nil
}
