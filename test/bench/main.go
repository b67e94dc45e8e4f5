package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

func main() {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == loadArg:
		err = runLoad(os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == tasksArg:
		err = runTasks(os.Args[2:])
	default:
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
		defer stop()
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the settings of a run.
type settings struct {
	cases  []benchmark
	tools  []string // tools to measure, empty for all
	rounds int
	isFull bool // measures everything and writes the files
	// ours is the path of the corescope binary, peers the directory tree with libbpf-tools.
	ours, peers string
	// base is the path of another corescope binary that takes the place of the peers, or empty.
	base string
}

func run(ctx context.Context) error {
	s, err := readSettings(ctx)
	if err != nil {
		return err
	}
	if err := s.mount(); err != nil {
		return err
	}
	// Enables the measurement of BPF run time (since 5.8).
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("measure run time: %w", err)
	}
	defer stats.Close()
	var all []result
	for _, c := range s.cases {
		results, err := c.run(ctx, s)
		if errors.Is(err, errUnavailable) {
			progress("%s: %v", c.name(), err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
		all = append(all, results...)
	}
	scale, err := s.scale(ctx)
	if err != nil {
		return fmt.Errorf("scale: %w", err)
	}
	shares, err := s.shares(ctx)
	if err != nil {
		return err
	}
	all = slices.Concat(all, scale, shares)
	disk, err := s.disk()
	if err != nil {
		return err
	}
	return writeResults(append(all, disk), s)
}

func (s *settings) wants(b *benchmark) bool {
	return len(s.tools) == 0 || slices.Contains(s.tools, b.tool)
}

func readSettings(ctx context.Context) (*settings, error) {
	s := &settings{cases: benchmarks, rounds: 5, isFull: true, peers: os.Getenv("PEERS")}
	if words := strings.Fields(os.Getenv("TOOLS")); len(words) > 0 {
		s.isFull, s.tools = false, words
		s.cases = slices.DeleteFunc(slices.Clone(benchmarks), func(c benchmark) bool { return !s.wants(&c) })
	}
	if s.base = os.Getenv("BASE"); s.base != "" {
		s.isFull = false
	}
	if text := os.Getenv("ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("ROUNDS=%s: want a positive number", text)
		}
		s.rounds, s.isFull = n, false
	}
	return s, s.install(ctx)
}

// install builds corescope and creates the directory tree of the peers in the user's cache.
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

// mount mounts /proc, /sys, /dev and tracefs in the tree of the peers, in a new mount
// namespace. Only this thread and the processes that it starts are in the namespace, so the
// goroutine stays locked to the thread.
func (s *settings) mount() error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("create mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := unix.Mount(dir, s.peers+dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	const tracing = "/sys/kernel/tracing"
	if _, err := os.Stat(tracing + "/events"); err == nil {
		return nil
	}
	if err := unix.Mount("tracefs", s.peers+tracing, "tracefs", 0, ""); err != nil {
		return fmt.Errorf("mount tracefs: %w", err)
	}
	return nil
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
