package tools_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools"
)

// documented is a line of testdata/commands.tsv: a command line in the documentation of BCC,
// libbpf-tools or bpftrace, and the column names that the peer prints for it.
type documented struct {
	tool, command string
	header        string // with single spaces; empty if the output has none
	source        string
	// reason states why the tool differs:
	//
	//	refused: WHY        the command line is not accepted
	//	header: adds A B    the columns A and B are additional
	//	header: WHY         other columns are shown
	//	unnamed: WHY        the peer's output has no column names
	//	syntax: later       the command line is not counted
	reason string
}

func documentedCommands(t *testing.T) []documented {
	t.Helper()
	data, err := os.ReadFile("testdata/commands.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var all []documented
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		cells := strings.Split(line, "\t")
		if len(cells) != 5 {
			t.Fatalf("line %d of commands.tsv has %d cells, want 5: %q", i+1, len(cells), line)
		}
		if i > 0 {
			all = append(all, documented{cells[0], cells[1], cells[2], cells[3], cells[4]})
		}
	}
	return all
}

// TestDocumentedCommands checks that at least 99 % of the command lines in the documentation of BCC,
// libbpf-tools and bpftrace are accepted, and that text output has the column names of the peer, in
// their order, except where the data states a reason. Each line has one of the two.
func TestDocumentedCommands(t *testing.T) {
	var counted, refused int
	headers := map[string]int{}
	for _, d := range documentedCommands(t) {
		if d.reason == "syntax: later" {
			continue
		}
		counted++
		header, err := headerOf(t, d)
		if err != nil {
			refused++
		}
		isRefused := strings.HasPrefix(d.reason, "refused: ")
		switch {
		case isRefused != (err != nil):
			t.Errorf("%s (%s): reason %q, error %v", d.command, d.source, d.reason, err)
		case (d.header == "") != strings.HasPrefix(d.reason, "unnamed: ") && !isRefused:
			t.Errorf("%s (%s): header %q, reason %q: want a header or a reason that starts with unnamed", d.command, d.source, d.header, d.reason)
		case err == nil && d.header != "":
			kind := d.compare(header)
			headers[kind]++
			if want, _, _ := strings.Cut(d.reason, ": "); kind == "adds" && d.reason != "header: adds "+d.added(header) ||
				kind != "adds" && (kind == "equal") != (want == "") {
				t.Errorf("%s (%s): reason %q\n shown there %q\n ours        %q (%s)", d.command, d.source, d.reason, d.header, header, kind)
			}
		}
	}
	t.Logf("%d command lines, %d accepted; headers: %d equal, %d with additional columns, %d others",
		counted, counted-refused, headers["equal"], headers["adds"], headers["differs"])
	if counted < 500 || refused*100 > counted {
		t.Errorf("%d of %d command lines are refused, want at most 1 %% of at least 500", refused, counted)
	}
}

// compare returns whether the header is equal, adds columns to the documented ones, or differs.
func (d *documented) compare(header string) string {
	switch _, isSubset := subtract(header, d.header); {
	case header == d.header:
		return "equal"
	case isSubset:
		return "adds"
	}
	return "differs"
}

func (d *documented) added(header string) string {
	added, _ := subtract(header, d.header)
	return added
}

// subtract removes words from a line, and reports whether it contains them in this order.
func subtract(line, words string) (rest string, ok bool) {
	all := strings.Fields(line)
	from := 0
	for _, word := range strings.Fields(words) {
		i := slices.Index(all[from:], word)
		if i < 0 {
			return "", false
		}
		from += i
		all = slices.Delete(all, from, from+1)
	}
	return strings.Join(all, " "), true
}

// headerOf parses the command line and returns the column names that it prints. Names of processes,
// disks, terminals and files, which are those of another machine, are replaced.
func headerOf(t *testing.T, d documented) (string, error) {
	t.Helper()
	command := regexp.MustCompile(`\$\((pidof )?[a-z]+\)`).ReplaceAllString(d.command, strconv.Itoa(os.Getpid()))
	command = regexp.MustCompile(`\b(nvme0n1|[sv]d[a-z])\b`).ReplaceAllString(command, anyDisk(t))
	command = strings.Replace(command, "/usr/local/bin/lockinversion", "/proc/self/exe", 1)
	if d.tool == "ttysnoop" {
		command = regexp.MustCompile(`^(ttysnoop )(/dev/pts/)?2\b`).ReplaceAllString(command, "${1}${2}"+strconv.Itoa(terminal(t)))
	}
	for _, tl := range tools.All() {
		if named := tl.As(d.tool); named != nil {
			return named.Header(tool.ExampleArgs(command)...)
		}
	}
	t.Fatalf("there is no tool %s", d.tool)
	return "", nil
}

// terminal opens a new terminal for the test and returns its number below /dev/pts.
func terminal(t *testing.T) int {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// anyDisk returns the name of a disk of this machine.
func anyDisk(t *testing.T) string {
	t.Helper()
	disks, err := os.ReadDir("/sys/block")
	if err != nil || len(disks) == 0 {
		t.Skipf("/sys/block lists no disk (%v)", err)
	}
	return disks[0].Name()
}
