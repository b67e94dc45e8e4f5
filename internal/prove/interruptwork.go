package prove

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Proofs of tools that count interrupts of the whole machine. The counters of the kernel are read before the tool
// starts, before the workload, after it, and after the tool has ended: the tool must show at least what happened
// during the workload, and at most what happened from before its start until after its end.
func interruptProofs() []proof {
	return []proof{
		{tool: "softirqs", job: "softirqs", n: many, does: "send a datagram to itself", args: "-C", by: "softirq", own: "softirq", async: true, alone: true},
		{tool: "hardirqs", job: "hardirqs", n: 200, does: "read 4096 bytes of a file from the disk (O_DIRECT)", by: "irq hardirq", own: "irq", async: true, alone: true},
	}
}

func interruptJobs() map[string]job {
	return map[string]job{
		"softirqs": counted("/proc/softirqs", ownNetwork, datagrams, softirqRow),
		"hardirqs": counted("/proc/interrupts", prepareBlocks, directReads(nil, nil), hardirqRow),
	}
}

// interrupts are the counts of a file, and the words after them, by the word before the colon.
type interrupts map[string]interrupt

type interrupt struct {
	count int64
	words []string
}

func readInterrupts(path string) (interrupts, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the counters of the kernel: %w", err)
	}
	all := interrupts{}
	for line := range strings.Lines(string(text)) {
		name, rest, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		var i interrupt
		i.words = strings.Fields(rest)
		for len(i.words) > 0 {
			n, err := strconv.ParseInt(i.words[0], 10, 64)
			if err != nil {
				break
			}
			i.count, i.words = i.count+n, i.words[1:]
		}
		all[strings.TrimSpace(name)] = i
	}
	return all, nil
}

// counted returns a job whose events are counted in a file. rowOf returns the row of a counter, nil if the tool has
// none for it; its count is added.
func counted(path string, prepare, load func(*worker) error, rowOf func(name string, words []string) row) job {
	var start, begin, end interrupts
	read := func(to *interrupts) (err error) {
		*to, err = readInterrupts(path)
		return err
	}
	return job{
		prepare: func(w *worker) error { return errors.Join(prepare(w), read(&start)) },
		run: func(w *worker) error {
			return errors.Join(read(&begin), load(w), read(&end))
		},
		late: func(w *worker) error {
			now, err := readInterrupts(path)
			if err != nil {
				return err
			}
			for name, i := range now {
				least, most := end[name].count-begin[name].count, i.count-start[name].count
				r := rowOf(name, i.words)
				if least <= 0 || r == nil {
					continue
				}
				r["count"] = between(least, most)
				// Between the two times that are subtracted is at least the end of a program and the begin of another.
				const shortest = 10
				r["total_ns"] = between(least*shortest, (w.elapsed())*int64(runtime.NumCPU()))
				w.sum(r)
			}
			if len(w.log.Rows) == 0 {
				return notHereError{errors.New("no interrupt with a handler of its own occurred")}
			}
			return nil
		},
	}
}

// elapsed is the time since the process was prepared.
func (w *worker) elapsed() int64 { return now() - w.prepared }

func softirqRow(name string, words []string) row {
	if len(words) > 0 {
		return nil
	}
	return row{"softirq": strings.ToLower(name)}
}

// nameSize is the size of the names of handlers that the tool shows.
const nameSize = 32

// hardirqRow returns the row of an interrupt with one handler. Its name is at the end of the line, and can contain
// spaces.
func hardirqRow(name string, words []string) row {
	irq, err := strconv.Atoi(name)
	if err != nil || strings.Contains(strings.Join(words, " "), ",") || len(words) == 0 || len(words[len(words)-1]) >= nameSize {
		return nil
	}
	var names []string
	for i := range words {
		names = append(names, strings.Join(words[i:], " "))
	}
	return row{"irq": irq, "hardirq": row{"any": names}}
}

// datagrams sends datagrams to itself.
func datagrams(w *worker) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("create socket: %w", err)
	}
	defer unix.Close(s)
	if err := unix.Bind(s, address(clientHost, 0)); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	b := make([]byte, 1)
	for range w.n {
		if err := unix.Sendto(s, b, 0, address(clientHost, portOf(s))); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		if _, err := unix.Read(s, b); err != nil {
			return fmt.Errorf("receive: %w", err)
		}
	}
	return nil
}
