package target

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/corescope/corescope/internal/probe"
)

// TracingDir returns the mount point of tracefs.
func (f *Finder) TracingDir() (string, error) {
	if f.Tracing != "" {
		return f.Tracing, nil
	}
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(filepath.Join(dir, "events")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("find tracefs: %w: mount it with 'mount -t tracefs tracefs /sys/kernel/tracing'", os.ErrNotExist)
}

// tracepoints finds tracepoints by "category:event", or by the event if the pattern has no colon, except the events of ftrace itself, which are
// not tracepoints.
func (f *Finder) tracepoints(s *Spec, match func(string) bool) ([]Place, error) {
	dir, err := f.TracingDir()
	if err != nil {
		return nil, err
	}
	file, err := os.Open(filepath.Join(dir, "available_events"))
	if err != nil {
		return nil, fmt.Errorf("read tracepoints: %w", err)
	}
	defer file.Close()
	var places []Place
	in := bufio.NewScanner(file)
	for in.Scan() {
		name := in.Text()
		_, event, _ := strings.Cut(name, ":")
		if (match(name) || !strings.Contains(s.Name, ":") && match(event)) && !strings.HasPrefix(name, "ftrace:") {
			places = append(places, Place{Target: probe.Target{Name: strings.Replace(name, ":", "/", 1)}})
		}
	}
	return places, in.Err()
}
