// Command bench measures corescope's tools and their peers of libbpf-tools on the same
// loads, in turn, and writes docs/benchmarks.md and docs/benchmarks.json. It runs as
// root in the root of the tree, by `make bench`:
//
//	TOOLS="opensnoop runqlat" ROUNDS=3 make bench
//
// runs a part and prints it, and writes nothing. PEERS=TREE names where
// test/peers/install.sh has put the peers, or shall.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

func main() {
	var err error
	if len(os.Args) > 1 && os.Args[1] == loadArg {
		err = runLoad(os.Args[2:])
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
		defer stop()
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are those of the whole run.
type settings struct {
	cases  []benchmark
	rounds int
	whole  bool
	// ours is the binary, peers the tree with libbpf-tools.
	ours, peers string
}

func run(ctx context.Context) error {
	s, err := readSettings(ctx)
	if err != nil {
		return err
	}
	// From 5.8 on; so that every program's time is counted.
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("measure run time: %w", err)
	}
	defer stats.Close()
	var all []result
	for _, c := range s.cases {
		results, err := c.run(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
		all = append(all, results...)
	}
	disk, err := s.disk()
	if err != nil {
		return err
	}
	return conclude(append(all, disk), s)
}

func readSettings(ctx context.Context) (*settings, error) {
	s := &settings{cases: benchmarks, rounds: 5, whole: true, peers: os.Getenv("PEERS")}
	if words := strings.Fields(os.Getenv("TOOLS")); len(words) > 0 {
		s.whole = false
		s.cases = slices.DeleteFunc(slices.Clone(benchmarks), func(c benchmark) bool { return !slices.Contains(words, c.tool) })
	}
	if text := os.Getenv("ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("ROUNDS=%s is not a number of rounds", text)
		}
		s.rounds, s.whole = n, false
	}
	return s, s.install(ctx)
}

// install builds our binary and makes the tree of the peers, outside of the sources.
func (s *settings) install(ctx context.Context) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	if s.peers == "" {
		s.peers = filepath.Join(cache, "corescope", "peers")
	}
	for _, args := range [][]string{{"make"}, {"test/peers/install.sh", s.peers}} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("run %s: %w: %s", args[0], err, out)
		}
	}
	s.ours, err = filepath.Abs("bin/corescope")
	return err
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
