package documents

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/command"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// executed says where a command of the pages that is not a tool is executed: the file has the text.
type executed struct{ pattern, file, text string }

// others returns what executes such commands. The patterns match whole commands.
func others() []executed {
	return []executed{
		{`git clone https://github.com/corescope/corescope && cd corescope`, "scripts/fresh-machine.sh", "git clone"},
		{`make && sudo bin/execsnoop`, "scripts/fresh-machine.sh", "sudo bin/execsnoop"},
		{`make && sudo bin/exits --explain && sudo bin/exits --duration 5s`, "scripts/test-new.sh", "scripts/new.sh newtool"},
		{`make test`, "scripts/fresh-machine.sh", "make test"},
		{`make new( TOOL=exits)?`, "scripts/test-new.sh", "scripts/new.sh newtool"},
		{`make docs`, "scripts/new.sh", "docs.sh"},
		{`make generate`, "scripts/check-generated.sh", "make --no-print-directory check-generated"},
		{`go generate ./tools/exits`, "scripts/new.sh", "go generate"},
		{`make lint|scripts/lint.sh format\|static\|race`, "scripts/test-background.sh", "scripts/lint.sh"},
		{`((KERNELS|TOOLS|CPUS)=("[^"]*"|\S+) )*make test-kernels`, "scripts/test-kernels.sh", "./test/kernels"},
		{`make site`, "scripts/test-background.sh", "scripts/site test"},
		{`make dist`, "scripts/test-dist.sh", "scripts/dist.sh"},
		{`make install|make GOARCH=arm64 all install DESTDIR=…|make VERSION=1.2.3`, "packaging/debian/rules", "install DESTDIR="},
		{`go mod vendor|GOFLAGS='-mod=vendor -trimpath' GOPROXY=off GOTOOLCHAIN=local make`, "scripts/test-package.sh", "go mod vendor"},
		{`scripts/test-package.sh rpm`, "scripts/test-package.sh", "build_rpm()"}, // itself a test
		{`CLANG=clang-20 .*go generate'`, "packaging/debian/rules", "xargs -n 8 go generate"},
		{`(BASE=FILE )?make bench`, "test/bench/bench_test.go", "BASE"},
		{`make stacks`, "test/stacks/stacks_test.go", "func Test"},
		{`sudo go run ./test/mutants -list|sudo go run ./test/mutants \[-every N\] \[-results FILE\] \[TOOL…\]`, "test/mutants/mutants_test.go", "func Test"},
		{`make test-fleet( FLEET=(kubernetes|churn|figures|hosts))?`, "test/fleet/fleet_test.go", "FLEET"},
		{`helm install corescope .*`, "test/fleet/kubernetes_test.go", `"helm", "install", "corescope"`},
		{`kubectl (corescope|apply|exec).*`, "test/fleet/kubernetes_test.go", `"kubectl", "corescope"`},
		{`scripts/test-rebuild.sh SUITE CLANG`, "scripts/test-rebuild.sh", "scripts/test-rebuild.sh SUITE CLANG"}, // itself a test
		{`scripts/deploy.sh check`, "test/fleet/image_test.go", ""},
		{`(sudo bin/)?corescope agent`, "internal/agent/agent_test.go", "func Test"},
		{`curl -s http://127.0.0.1:9760/metrics \| grep runqlat`, "scripts/test-service.sh", "http://127.0.0.1:9760/metrics"},
		{`corescope --host .*`, "internal/remote/remote_test.go", "func TestText"},
		{`(sudo )?corescope prove( opensnoop)?( -v)?( --stats)?`, "internal/prove/live_test.go", "func Test"},
	}
}

// elsewhere returns the commands of a page that are not tools: lines of code blocks, and code in the text, that
// begin with such a program.
func elsewhere(text string) (commands []string) {
	programs := regexp.MustCompile(`^(?:[A-Z]+=(?:"[^"]*"|'[^']*'|\S+) )*(sudo|make|go|git|helm|kubectl|curl|scripts/\S+|corescope|CLANG=\S+ sh)( [^ ]|$)`)
	isCode := false
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", "")) {
		if strings.HasPrefix(line, "```") {
			isCode = !isCode
			continue
		}
		found := []string{strings.TrimSpace(line)}
		if !isCode {
			found = nil
			for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(line, -1) {
				found = append(found, m[1])
			}
		}
		for _, c := range found {
			c, _, _ = strings.Cut(c, " # ")
			c = regexp.MustCompile(`\s+#.*`).ReplaceAllString(strings.TrimSpace(c), "")
			if tl, _ := find(strings.TrimPrefix(c, "corescope "), 0); tl == nil && programs.MatchString(c) && strings.Contains(c, " ") {
				commands = append(commands, c)
			}
		}
	}
	return commands
}

// TestElsewhere checks that each command of the pages that is not a tool is executed by a test.
func TestElsewhere(t *testing.T) {
	n := 0
	used := map[string]bool{}
	for _, name := range pages(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range elsewhere(string(text)) {
			if isVerb(c) || isGo(t, c) {
				continue
			}
			n++
			all := others()
			i := slices.IndexFunc(all, func(e executed) bool { return regexp.MustCompile(`^(?:` + e.pattern + `)$`).MatchString(c) })
			if i < 0 {
				t.Errorf("%s: nothing executes %q", filepath.Base(name), c)
				continue
			}
			used[all[i].pattern] = true
			source, err := os.ReadFile("../../" + all[i].file)
			if err != nil || !strings.Contains(string(source), all[i].text) {
				t.Errorf("%s: %q is not executed by %s, which has no %q (%v)", filepath.Base(name), c, all[i].file, all[i].text, err)
			}
		}
	}
	for _, e := range others() {
		if !used[e.pattern] {
			t.Errorf("no page has the command %s", e.pattern)
		}
	}
	t.Logf("%d commands", n)
}

// isGo reports whether a command is one of Go: its tests, or a verb that reads a program or the modules. The
// packages and tests that it names must exist.
func isGo(t *testing.T, command string) bool {
	t.Helper()
	if _, ok := strings.CutPrefix(command, "go version -m bin/"); ok || command == "go tool nm -size" || command == "go mod why" {
		return true
	}
	_, args, ok := strings.Cut(command, "go test ")
	if !ok {
		return false
	}
	args, run, _ := strings.Cut(args, " -run ")
	for _, dir := range strings.Fields(args) {
		if strings.HasSuffix(dir, "/exits") { // the tool that CONTRIBUTING.md adds
			continue
		}
		dir = strings.Replace(dir, "NAME", "opensnoop", 1)
		files, _ := filepath.Glob("../../" + dir + "/*_test.go")
		if len(files) == 0 {
			t.Errorf("%s: there are no tests in %s", command, dir)
		}
		name := regexp.MustCompile(`^[A-Z]\w*`).FindString(strings.TrimPrefix(run, "Test"))
		if !slices.ContainsFunc(files, func(f string) bool {
			source, err := os.ReadFile(f)
			return err == nil && regexp.MustCompile(`(?m)^func Test\w*`+name).Match(source)
		}) {
			t.Errorf("%s: no test in %s has %s in its name", command, dir, name)
		}
	}
	return true
}

// verbs are the commands of corescope that TestVerbs runs; TOOL and SYMPTOM are words in the pages.
func verbs() map[string][]string {
	return map[string][]string{
		"corescope help": {"help"}, "corescope help SYMPTOM": {"help", "slow", "disk"},
		"corescope man": {"man"}, "corescope man TOOL": {"man", "opensnoop"},
		"corescope doctor": {"doctor", "opensnoop"}, "corescope version --json": {"version", "--json"},
		"corescope schema prove": {"schema", "prove"}, "corescope prove --dry-run": {"prove", "--dry-run"},
		"corescope prove [TOOL…]": {"prove", "--dry-run", "opensnoop"}, "corescope TOOL …": {"list"},
	}
}

func isVerb(command string) bool { return verbs()[command] != nil }

// TestVerbs runs the verbs that the pages show.
func TestVerbs(t *testing.T) {
	tooltest.Root(t)
	for name, args := range verbs() {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			c := &command.Command{Tools: tools.All(), Version: "test", Objects: tools.Objects, Out: &out, Err: &errOut}
			if code := c.Run(t.Context(), append([]string{"corescope"}, args...)); code != tool.ExitOK || out.Len() == 0 {
				t.Errorf("%q: exit code %d, %d bytes: %s", args, code, out.Len(), &errOut)
			}
		})
	}
}
