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
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// report is the part of the output of doctor --output json that the tests check.
type report struct {
	Runs    bool
	Machine map[string]any
	Tools   []toolReport
}

type toolReport struct {
	Name          string
	Runs          bool
	Hooks         []struct{ Where string }
	Error, Remedy string
	ExitCode      int `json:"exit_code"`
}

// hide runs the command in a private mount namespace in which these directories are empty.
func hide(cmd *exec.Cmd, dirs ...string) *exec.Cmd {
	if len(dirs) > 0 {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
		cmd.Env = append(cmd.Env, hidden+"="+strings.Join(dirs, " "))
	}
	return cmd
}

// output runs a command and returns its output and exit code.
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

// doctor runs doctor and validates its output against the JSON schema.
func doctor(t *testing.T, cmd *exec.Cmd) (c report, code int) {
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
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.MustCompile("doctor.json").Validate(parsed); err != nil {
		t.Errorf("%v: %s", err, stdout)
	}
	return c, code
}

// TestDoctorIsRight compares the report of doctor about each tool with a run of the tool: it runs,
// or it fails with the reported exit code, error and remedy.
func TestDoctorIsRight(t *testing.T) {
	needsRoot(t)
	none, enough := system.Capabilities(0), system.Capabilities(0)
	unsupported := unsupportedHere(t)
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
		{"nobody", none, false, nil, "missing "},
		{"CAP_BPF", system.Set(system.CapBPF), false, nil, "missing "},
		{"what it needs", enough, false, nil, ""},
		{"without BTF", none, true, []string{"/sys/kernel/btf"}, "provide the BTF of kernel "},
		{"without tracefs", none, true, []string{"/sys/kernel/tracing"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			command := func(args ...string) *exec.Cmd {
				return hide(program(t.Context(), tt.capabilities, tt.root, args...), tt.hidden...)
			}
			got, code := doctor(t, command("doctor", "--output", "json"))
			runs := tt.remedy == "" && len(unsupported) == 0
			if got.Runs != runs || got.Runs != (code == tool.ExitOK) || len(got.Tools) != len(plain()) {
				t.Errorf("runs: %v, exit code %d, of %d tools", got.Runs, code, len(got.Tools))
			}
			for _, s := range got.Tools {
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel()
					stderr, code := "", tool.ExitOK
					if tt.name != "what it needs" || !s.Runs { // TestEnough runs the tool with that
						_, stderr, code = output(t, command(s.Name, "--duration", "1ms"))
					}
					if s.ExitCode != code || !s.Runs && !matchesReport(stderr, &s) {
						t.Errorf("doctor reports %+v, %s exited with %d: %s", s, s.Name, code, stderr)
					}
					if hasNoPrograms(s.Name) {
						if !s.Runs && s.Name != "resettrace" && s.Name != "tplist" { // which need tracefs, or BTF
							t.Errorf("doctor reports %+v of a tool without programs", s)
						}
						return
					}
					if unsupported[s.Name] || tt.name != "root" && tooltest.NeedsTracefs(t, named(s.Name)) {
						return
					}
					remedy := tt.remedy
					if remedy == "missing " {
						remedy = lacks(s.Name, tt.capabilities)
					}
					if s.Runs != (tt.remedy == "") || !strings.HasPrefix(s.Remedy, remedy) || s.Runs != (s.Error == "") || s.Runs && len(s.Hooks) == 0 {
						t.Errorf("doctor reports %+v", s)
					}
				})
			}
		})
	}
}

// hasNoPrograms reports whether the tool needs no BPF program, and so no capability.
func hasNoPrograms(name string) bool { return named(name).NoPrograms }

func named(name string) *tool.Tool {
	all := tools.All()
	return all[slices.IndexFunc(all, func(tl *tool.Tool) bool { return tl.Name == name })]
}

// lacks returns the remedy for a tool that has only these capabilities.
func lacks(name string, held system.Capabilities) string {
	needs := named(name).Needs()
	return fmt.Sprintf("missing %s: run corescope as root, or with %s", needs&^held, needs)
}

// matchesReport reports whether a tool failed with the error and the remedy that doctor reports. The
// error of a tool can say more: which hooks it tried before, or what it attaches to. A tool with
// iterators stops at the first one that is not permitted, while doctor tries all: the remedy is the
// same, but the error can differ.
func matchesReport(stderr string, s *toolReport) bool {
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	last, end := lines[len(lines)-1], ""
	if s.Remedy != "" {
		end = " (" + s.Remedy + ")"
	}
	hasIterator := slices.ContainsFunc(s.Hooks, func(h struct{ Where string }) bool { return strings.HasPrefix(h.Where, "iter/") })
	return strings.HasPrefix(last, s.Name+": ") && strings.HasSuffix(last, end) && (hasIterator || strings.Contains(last, s.Error))
}

// TestDoctorText checks the text output, and that tools can be selected.
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
		t.Errorf("the report has tcplife, which was not requested: %s", text)
	}
	text, _, code = output(t, program(t.Context(), 0, false, "doctor"))
	const remedy = "\n  missing CAP_BPF, CAP_PERFMON: run corescope as root, or with CAP_BPF, CAP_PERFMON\n"
	if code != tool.ExitNotPermitted || strings.Count(text, remedy) != 1 {
		t.Errorf("without capabilities: exit code %d: %s", code, text)
	}
}
