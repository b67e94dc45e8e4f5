package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// call is a system call in a log of strace.
type call struct {
	pid        int
	name, args string
	ret        int64
	noReturn   bool // the call did not return, because the process exited
}

// straceArgs is the command line of strace for a log that [readStrace] can parse: all processes,
// descriptors with their paths, strings of unlimited length.
func straceArgs(log string, calls ...string) []string {
	args := []string{"strace", "-f", "-qq", "-y", "-s", "4096", "-o", log}
	if len(calls) > 0 {
		args = append(args, "-e", "trace="+strings.Join(append(calls, "read"), ","))
	}
	return args
}

var (
	straceLine = regexp.MustCompile(`^(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)$`)
	straceEnd  = regexp.MustCompile(`^(.*)\) += (\?|-?\d+|0x[0-9a-f]+)(?:<.*>)?(?: .*)?$`)
)

// readStrace reads the calls after the release of the held program with this process ID.
func readStrace(log string, pid int) ([]call, error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return nil, fmt.Errorf("read strace log: %w", err)
	}
	var calls []call
	released := false
	unfinished := map[int]string{}
	for line := range strings.Lines(string(text)) {
		m := straceLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		c := call{name: m[2] + m[3]}
		c.pid, _ = strconv.Atoi(m[1])
		rest := m[4]
		if start, ok := strings.CutSuffix(rest, " <unfinished ...>"); ok {
			unfinished[c.pid] = start
			continue
		}
		if m[2] != "" {
			rest = unfinished[c.pid] + rest
			delete(unfinished, c.pid)
		}
		end := straceEnd.FindStringSubmatch(rest)
		if end == nil {
			return nil, fmt.Errorf("read strace log: unknown line %q", line)
		}
		c.args = end[1]
		c.ret, err = strconv.ParseInt(end[2], 0, 64)
		switch {
		case err != nil && strings.Contains(rest, "= ? ERESTART"): // interrupted by a signal
			c.ret = -1
		case err != nil:
			c.noReturn = true
		}
		if !released {
			released = c.pid == pid && c.name == "read" && strings.HasPrefix(c.args, "0<pipe:") && c.ret == 1
			continue
		}
		calls = append(calls, c)
	}
	if !released {
		return nil, fmt.Errorf("read strace log: no release of process %d", pid)
	}
	return calls, nil
}

// count counts the calls for which keep is true.
func count(calls []call, keep func(call) bool) (n float64) {
	for _, c := range calls {
		if keep(c) {
			n++
		}
	}
	return n
}
