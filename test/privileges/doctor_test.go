package privileges

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools"
)

// checkup is what doctor --output json says, of what is judged here.
type checkup struct {
	Runs    bool
	Machine map[string]any
	Tools   []trial
}

type trial struct {
	Name          string
	Runs          bool
	Hooks         []struct{ Where string }
	Error, Remedy string
	ExitCode      int `json:"exit_code"`
}

// hide makes a command see empty directories, in a mount namespace of its own.
func hide(cmd *exec.Cmd, dirs ...string) *exec.Cmd {
	if len(dirs) > 0 {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
		cmd.Env = append(cmd.Env, hidden+"="+strings.Join(dirs, " "))
	}
	return cmd
}

// output runs a command and returns what it wrote and its exit code.
func output(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// doctor is what doctor says, held against its schema.
func doctor(t *testing.T, cmd *exec.Cmd) (c checkup, code int) {
	t.Helper()
	stdout, stderr, code := output(t, cmd)
	if err := json.Unmarshal([]byte(stdout), &c); err != nil || stderr != "" {
		t.Fatalf("%v: %q, %q", err, stdout, stderr)
	}
	schema, _, _ := output(t, program(t.Context(), 0, false, "schema", "doctor"))
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("doctor.json", doc); err != nil {
		t.Fatal(err)
	}
	said, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.MustCompile("doctor.json").Validate(said); err != nil {
		t.Errorf("%v: %s", err, stdout)
	}
	return c, code
}

// What doctor says of each tool is what becomes of it: it runs, or it ends with the exit
// code, the error and the remedy that doctor told.
func TestDoctorIsRight(t *testing.T) {
	needsRoot(t)
	none, enough := system.Capabilities(0), system.Capabilities(0)
	for _, tl := range plain() {
		enough |= needs(tl)
	}
	for _, tt := range []struct {
		name         string
		capabilities system.Capabilities
		root         bool
		hidden       []string
		remedy       string // of tools that do not run; "" where all run
	}{
		{"root", none, true, nil, ""},
		{"nobody", none, false, nil, "lacks "},
		{"CAP_BPF", system.Set(system.CapBPF), false, nil, "lacks "},
		{"what it needs", enough, false, nil, ""},
		{"without BTF", none, true, []string{"/sys/kernel/btf"}, "give it the BTF of kernel "},
		{"without tracefs", none, true, []string{"/sys/kernel/tracing"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			command := func(args ...string) *exec.Cmd {
				return hide(program(t.Context(), tt.capabilities, tt.root, args...), tt.hidden...)
			}
			said, code := doctor(t, command("doctor", "--output", "json"))
			if said.Runs != (tt.remedy == "") || said.Runs != (code == tool.ExitOK) || len(said.Tools) != len(plain()) {
				t.Errorf("runs: %v, exit code %d, of %d tools", said.Runs, code, len(said.Tools))
			}
			for _, s := range said.Tools {
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel() // a tool mostly waits for the kernel to attach and detach
					_, stderr, code := output(t, command(s.Name, "--duration", "1ms"))
					if s.ExitCode != code || !s.Runs && !ends(stderr, &s) {
						t.Errorf("doctor said %+v, %s ended with %d: %s", s, s.Name, code, stderr)
					}
					remedy := tt.remedy
					if remedy == "lacks " {
						remedy = lacks(s.Name, tt.capabilities)
					}
					if s.Runs != (tt.remedy == "") || !strings.HasPrefix(s.Remedy, remedy) || s.Runs != (len(s.Hooks) > 0 && s.Error == "") {
						t.Errorf("doctor said %+v", s)
					}
				})
			}
		})
	}
}

// lacks is the remedy for a tool that has just these capabilities.
func lacks(name string, held system.Capabilities) string {
	i := slices.IndexFunc(tools.All(), func(tl *tool.Tool) bool { return tl.Name == name })
	needs := tools.All()[i].Needs()
	return fmt.Sprintf("lacks %s: run it as root, or give it %s", needs&^held, needs)
}

// ends tells whether a tool ended as doctor said. One with iterators stops at the first
// thing that it is refused, where doctor tries all: there the remedy is the same, and what
// cannot be had may differ.
func ends(stderr string, s *trial) bool {
	if slices.ContainsFunc(s.Hooks, func(h struct{ Where string }) bool { return strings.HasPrefix(h.Where, "iter/") }) {
		return strings.HasPrefix(stderr, s.Name+": ") && strings.HasSuffix(stderr, " ("+s.Remedy+")\n")
	}
	return stderr == s.Name+": "+s.Error+" ("+s.Remedy+")\n"
}

// For people there is all of it too, and tools can be named.
func TestDoctorText(t *testing.T) {
	needsRoot(t)
	text, _, code := output(t, program(t.Context(), 0, true, "doctor", "opensnoop", "runqlat"))
	names := strings.Fields(text)
	for _, want := range []string{"kernel", "opensnoop", "runqlat", "yes"} {
		if code != tool.ExitOK || !slices.Contains(names, want) {
			t.Errorf("exit code %d, no %s: %s", code, want, text)
		}
	}
	if slices.Contains(names, "tcplife") {
		t.Errorf("tcplife was not asked for: %s", text)
	}
	text, _, code = output(t, program(t.Context(), 0, false, "doctor"))
	const remedy = "\n  lacks CAP_BPF, CAP_PERFMON: run it as root, or give it CAP_BPF, CAP_PERFMON\n"
	if code != tool.ExitNotPermitted || strings.Count(text, remedy) != 1 {
		t.Errorf("nobody's: exit code %d: %s", code, text)
	}
}
