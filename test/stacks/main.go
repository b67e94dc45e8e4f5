package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stacks:", err)
		os.Exit(1)
	}
}

// settings are the settings of a run.
type settings struct {
	programs []program
	subjects []subject
	isFull   bool // measures all programs and writes the file
}

func run(ctx context.Context) error {
	s, err := readSettings(ctx)
	if err != nil {
		return err
	}
	var rows []row
	for i := range s.programs {
		p := &s.programs[i]
		r, err := s.measure(ctx, p)
		if errors.Is(err, errUnavailable) {
			progress("%s: %v", p.name, err)
			rows = append(rows, row{name: p.name, note: err.Error()})
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		rows = append(rows, r)
		progress("%s", r.text())
	}
	if !s.isFull {
		return nil
	}
	return os.WriteFile("docs/stacks.md", document(rows, s.subjects), 0o644)
}

func readSettings(ctx context.Context) (*settings, error) {
	s := &settings{programs: programs(), isFull: true}
	if words := strings.Fields(os.Getenv("CASES")); len(words) > 0 {
		s.isFull = false
		s.programs = slices.DeleteFunc(s.programs, func(p program) bool { return !slices.Contains(words, p.name) })
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	peers := os.Getenv("PEERS")
	if peers == "" {
		peers = filepath.Join(cache, "corescope", "peers")
	}
	steps := [][]string{{"make"}, {"test/peers/install.sh", peers}}
	if os.Getenv("INSTALL") != "" {
		steps = append(steps, []string{"test/stacks/install.sh"})
	}
	for _, args := range steps {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("run %s: %w: %s", args[0], err, out)
		}
	}
	s.subjects, err = subjects(peers)
	return s, err
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
