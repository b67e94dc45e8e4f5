package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// elsewhere is a tool whose hooks or devices few machines have. A live test compares it with a reference,
// on the virtual machines of docs/compatibility.md.
type elsewhere struct {
	tool, test, reference string
}

func elsewheres() []elsewhere {
	return []elsewhere{
		{"cachestat", "TestReads", "pages that the test reads into the page cache, and reads again"},
		{"cpufreq", "TestProgram", "the frequency that the test passes to the program of the tracepoint"},
		{"criticalstat", "TestSections", "sections that the test simulates by BPF_PROG_TEST_RUN: few kernels have the tracepoints"},
		{"dcsnoop", "TestMisses", "names that the test looks up, which do not exist"},
		{"dcstat", "TestCounts", "names that the test looks up, cached and not cached"},
		{"filelife", "TestLives", "times around the calls that create and delete the files"},
		{"fsnotifysnoop", "TestInotify", "events that read(2) of inotify and fanotify returns"},
		{"inject", "TestInject", "calls that fail in the process, and in no other one"},
		{"ksnoop", "TestCalls", "arguments and return values of the test's system calls"},
		{"llcstat", "TestPrograms", "context switches of a thread, in place of the hardware counters"},
		{"mdflush", "TestFlush", "flushes of an md disk that the test creates"},
		{"mptcpify", "TestProtocol", "SO_PROTOCOL of the sockets"},
		{"numamove", "TestReasons", "migrated pages in /proc/vmstat"},
		{"numasched", "TestMove", "moves of a thread between nodes by the test"},
		{"ppchcalls", "TestCalls", "calls simulated by BPF_PROG_TEST_RUN: the hypervisor interface exists only on POWER"},
		{"rdmaucma", "TestEvents", "events that the program receives for an RDMA device in software"},
		{"readahead", "TestSequential", "pages of the file that are in the page cache"},
		{"swapin", "TestSwap", "pswpin in /proc/vmstat"},
		{"tcpdrop", "TestFilter", "packets that a socket filter drops"},
		{"tcpretrans", "TestSegments", "RetransSegs of a network namespace"},
		{"virtiostat", "TestDisk", "/sys/block/DISK/stat"},
	}
}

// documentElsewhere renders the table. It returns an error if a test does not exist.
func documentElsewhere(root string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("\n## Compared in live tests on other kernels\n\nThe kernel of this run lacks the hooks or devices of these tools. Their live tests compare them with a\nreference in the virtual machines of [compatibility.md](compatibility.md).\n\n| tool | test | reference |\n|---|---|---|\n")
	for _, e := range elsewheres() {
		found := false
		files, err := filepath.Glob(filepath.Join(root, "tools", e.tool, "*_test.go"))
		if err != nil {
			return nil, fmt.Errorf("list tests of %s: %w", e.tool, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read tests of %s: %w", e.tool, err)
			}
			found = found || strings.Contains(string(text), "\nfunc "+e.test+"(")
		}
		if !found {
			return nil, fmt.Errorf("%s has no test %s", e.tool, e.test)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", e.tool, code(e.test), e.reference)
	}
	return b.Bytes(), nil
}
