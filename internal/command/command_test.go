package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/corescope/corescope/internal/command"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools"
)

// TestMain runs corescope if the test binary is called by that name, as the tests of shells do.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "corescope" {
		c := command.Command{Tools: tools.All(), Version: "test", Out: os.Stdout, Err: os.Stderr}
		os.Exit(c.Run(context.Background(), os.Args))
	}
	os.Exit(m.Run())
}

// run runs the program and returns its exit code and its output.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	c := command.Command{Tools: tools.All(), Version: "v1", Out: &out, Err: &errOut}
	code = c.Run(t.Context(), args)
	return code, out.String(), errOut.String()
}

func TestRun(t *testing.T) {
	const ok, usage = tool.ExitOK, tool.ExitUsage
	help := "opensnoop: Trace open() system calls: files opened by processes\n\nUsage: opensnoop [flags]\n"
	for _, tc := range []struct {
		args   string
		code   int
		out    string // start of standard output
		errOut string // part of standard error
	}{
		{"corescope opensnoop --help", ok, help, ""},
		{"corescope help opensnoop", ok, help, ""},
		{"/usr/bin/opensnoop --help", ok, help, ""},
		{"bpf-opensnoop --help", ok, help, ""},
		{"opensnoop-bpfcc --help", ok, help, ""},
		{"opensnoop-libbpf -h", ok, help, ""},
		{"ext4slower --help", ok, "ext4slower: Trace slow file system operations (read, write, open, fsync, getattr)\n\nUsage: ext4slower [flags] [min_ms]\nThe same as fsslower --type ext4\n", ""},
		{"bpf-ext4slower --help", ok, "ext4slower: ", ""},
		{"corescope man ext4slower", ok, ".TH FSSLOWER 8 ", ""},
		{"corescope schema ext4slower", ok, "{\n  \"$schema\"", ""},
		{"opensnoop --version", ok, "opensnoop (corescope v1)\n", ""},
		{"corescope ext4slower -V", ok, "ext4slower (corescope v1)\n", ""},
		{"memleak-bpfcc --versio", ok, "memleak (corescope v1)\n", ""},
		{"opensnoop --usage", ok, "Usage: opensnoop [-", ""},
		{"ext4slower --usage", ok, "Usage: ext4slower [-", ""},
		{"opensnoop --du 1 --help", ok, help, ""},
		{"opensnoop --p 1", usage, "", "usage: ambiguous flag --p: it can be --path, --perf-buffer, --pid"},
		{"opensnoop --nosuch", usage, "", "usage: unknown flag: --nosuch"},
		{"corescope help", ok, "Usage: corescope TOOL", ""},
		{"corescope --help", ok, "Usage: corescope TOOL", ""},
		{"corescope list --help", ok, "Usage: corescope TOOL", ""},
		{"corescope version", ok, "corescope v1\n", ""},
		{"corescope --version", ok, "corescope v1\n", ""},
		{"corescope man opensnoop", ok, ".TH OPENSNOOP 8 ", ""},
		{"corescope man", ok, ".TH CORESCOPE 1 ", ""},
		{"corescope schema opensnoop", ok, "{\n  \"$schema\"", ""},
		{"corescope completion bash", ok, "# Completion of corescope", ""},
		{"corescope", usage, "", "Usage: corescope TOOL"},
		{"corescope nosuch", usage, "", `usage: unknown tool or verb "nosuch"`},
		{"corescope --host", usage, "", `--host: "" is not the name of a host`},
		{"snoop-snoop", usage, "", "Usage: corescope TOOL"},
		{"corescope schema doctor", ok, "{\n  \"$schema\"", ""},
		{"corescope doctor nosuch", usage, "", `unknown tool "nosuch"`},
		{"corescope doctor opensnoop --output csv", usage, "", "want text or json"},
		{"corescope doctor --nosuch", usage, "", "unknown flag: --nosuch"},
		{"corescope doctor opensnoop --any-btf", usage, "", "--any-btf needs --btf"},
		{"corescope help nosuch", usage, "", `"nosuch" is not a tool, a verb or a symptom; corescope list`},
		{"corescope help slow", usage, "", "symptoms like it: slow-disk, slow-dns"},
		{"corescope help doctor", ok, ".TH CORESCOPE 1 ", ""},
		{"corescope prove --help", ok, "corescope prove: Compare", ""},
		{"corescope man opensnoop opensnoop", usage, "", "exactly one tool"},
		{"corescope schema", usage, "", "exactly one tool"},
		{"corescope schema opensnoop --columns nosuch", usage, "", "no such column"},
		{"corescope list --nosuch", usage, "", "unknown flag: --nosuch"},
		{"corescope version 2", usage, "", "unexpected argument \"2\""},
		{"corescope completion tcsh", usage, "", "bash, zsh or fish"},
		{"corescope completion", usage, "", "bash, zsh or fish"},
		{"corescope --host a", usage, "", "the name of a tool is missing"},
		{"corescope --host a nosuch", usage, "", `unknown tool "nosuch"`},
		{"corescope --host a,a opensnoop", usage, "", "host a is listed twice"},
		{"corescope --host a profile --output svg", usage, "", "--output svg is not supported on several hosts"},
		{"/usr/local/bin/kubectl-corescope", ok, "Usage: kubectl corescope [flags] TOOL", ""},
		{"kubectl-corescope --node a --help", ok, "Usage: kubectl corescope [flags] TOOL", ""},
		{"kubectl-corescope nosuch", usage, "", `unknown tool "nosuch"`},
		{"kubectl-corescope --node", usage, "", "--node needs a value"},
		{"kubectl-corescope --nosuch=1 opensnoop", usage, "", "unknown flag --nosuch"},
		{"kubectl-corescope --pod a --pod=b opensnoop", usage, "", `usage: --pod b: it takes one value and was given before as "a": give it once`},
		{"kubectl-corescope -n a --namespace b opensnoop", usage, "", `usage: --namespace b: it takes one value and was given before as "a"`},
		{"kubectl-corescope --node b --node a,b opensnoop", usage, "", "b is listed twice"},
		{"kubectl-corescope --node a --pod=b opensnoop", usage, "", "--node and --pod cannot be combined"},
	} {
		code, out, errOut := run(t, strings.Fields(tc.args)...)
		if code != tc.code || !strings.HasPrefix(out, tc.out) || !strings.Contains(errOut, tc.errOut) {
			t.Errorf("%s: exit code %d, output %q, errors %q, want %d, %q, %q",
				tc.args, code, out, errOut, tc.code, tc.out, tc.errOut)
		}
		if (out == "") != (tc.out == "") || (errOut == "") != (tc.errOut == "") {
			t.Errorf("%s: output %q, errors %q, want %q, %q", tc.args, out, errOut, tc.out, tc.errOut)
		}
	}
}

// A verb whose reader has closed the pipe ends like a tool: successfully and silently.
func TestClosedPipe(t *testing.T) {
	signal.Ignore(syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGPIPE)
	for _, line := range []string{
		"list", "list --names", "help", "--help", "help opensnoop", "list --help", "version", "man", "man opensnoop",
		"schema opensnoop", "schema doctor", "doctor opensnoop", "doctor opensnoop --output json", "completion bash", "complete -- corescope ",
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		var errOut bytes.Buffer
		c := command.Command{Tools: tools.All(), Version: "v1", Out: w, Err: &errOut}
		code := c.Run(t.Context(), append([]string{"corescope"}, strings.Split(line, " ")...))
		if code != tool.ExitOK || errOut.Len() > 0 {
			t.Errorf("%s: exit code %d, standard error %q, want success", line, code, &errOut)
		}
		w.Close()
	}
}

// TestList expects one line for each tool, below its category.
func TestList(t *testing.T) {
	_, text, _ := run(t, "corescope", "list")
	_, names, _ := run(t, "corescope", "list", "--names")
	_, table, _ := run(t, "corescope", "list", "--markdown")
	for _, tl := range tools.All() {
		if !strings.Contains(text, tl.Category+":\n") || strings.Count(text, "  "+tl.Summary+"\n") != 1 {
			t.Errorf("want %s exactly once in the list: %s", tl.Name, text)
		}
		if strings.Count(table, "| ["+tl.Name+"](man/man8/"+tl.Name+".8) | "+tl.Category+" | "+tl.Summary) != 1 {
			t.Errorf("want %s exactly once in the table: %s", tl.Name, table)
		}
		for _, name := range tl.Names() {
			if !slices.Contains(strings.Split(names, "\n"), name) {
				t.Errorf("%s is not a line of %q", name, names)
			}
		}
	}
}

// TestListAliases expects a line for each alias, with the command line that it abbreviates.
func TestListAliases(t *testing.T) {
	_, text, _ := run(t, "corescope", "list")
	_, aliases, _ := run(t, "corescope", "list", "--aliases")
	_, table, _ := run(t, "corescope", "list", "--markdown")
	for _, tl := range tools.All() {
		for _, a := range tl.Also {
			if !strings.Contains(text, "  "+tl.As(a.Name).StandsFor()+"\n") || !strings.Contains(aliases, a.Name+" "+tl.Name+"\n") {
				t.Errorf("%s is not in the lists: %s%s", a.Name, text, aliases)
			}
			if !strings.Contains(table, ", "+a.Name) && !strings.Contains(table, "; also "+a.Name) {
				t.Errorf("%s is not in the table: %s", a.Name, table)
			}
		}
	}
}

// TestEveryTool expects a valid schema and a manual page with all required sections for each tool.
func TestEveryTool(t *testing.T) {
	for _, tl := range tools.All() {
		code, page, errOut := run(t, "corescope", "man", tl.Name)
		for _, section := range []string{
			"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COLUMNS", "HOOKS", "OUTPUT",
			"EXAMPLES", `EXIT STATUS`, "PRIVILEGES", `SEE ALSO`,
		} {
			if code != tool.ExitOK || strings.Count(page, "\n.SH "+section+"\n") != 1 {
				t.Errorf("page of %s: exit code %d, %s: want section %s exactly once", tl.Name, code, errOut, section)
			}
		}
		code, schema, errOut := run(t, "corescope", "schema", tl.Name)
		if code != tool.ExitOK || !json.Valid([]byte(schema)) {
			t.Errorf("schema of %s: exit code %d: %s%s", tl.Name, code, schema, errOut)
		}
	}
}

// TestLossReasons expects an explanation of each loss reason of each tool in the manual page of
// corescope.
func TestLossReasons(t *testing.T) {
	_, page, _ := run(t, "corescope", "man")
	_, section, _ := strings.Cut(page, "\n.SH LOST EVENTS\n")
	section, _, _ = strings.Cut(section, "\n.SH ")
	for _, tl := range tools.All() {
		facts, err := tl.Facts()
		if err != nil {
			t.Fatal(err)
		}
		for _, reason := range facts.Lost {
			if !strings.Contains(section, "\\fB"+reason+"\\fR\n") {
				t.Errorf("%s: loss reason %s is not explained in:\n%s", tl.Name, reason, section)
			}
		}
	}
}

// TestNamesAreUnique expects that no tool has the name of a verb, because it would hide the verb.
func TestNamesAreUnique(t *testing.T) {
	_, out, _ := run(t, "corescope", "complete", "--", "corescope", "")
	words := firstFields(out)
	slices.Sort(words)
	if unique := slices.Compact(slices.Clone(words)); len(words) != len(unique) || !slices.Contains(words, "schema") {
		t.Errorf("tools and verbs %q, want unique names, among them schema", words)
	}
}
