package target

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
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
		_, err := os.Stat(filepath.Join(dir, "events"))
		switch {
		case err == nil:
			return dir, nil
		case errors.Is(err, fs.ErrPermission):
			return "", &machineError{fmt.Errorf("find tracefs: %w", err), probe.ErrNotPermitted}
		}
	}
	return "", &machineError{fmt.Errorf("find tracefs: %w: mount it with 'mount -t tracefs tracefs /sys/kernel/tracing'",
		os.ErrNotExist), probe.ErrUnsupported}
}

// machineError is an error whose cause is the machine, not the command line. class is ErrNotPermitted or
// ErrUnsupported of package probe.
type machineError struct{ err, class error }

func (e *machineError) Error() string     { return e.err.Error() }
func (e *machineError) IsOfMachine() bool { return true }
func (e *machineError) Unwrap() []error   { return []error{e.err, e.class} }

// tracepoints finds tracepoints by "category:event", or by the event if the pattern has no colon, except the events of ftrace itself, which are
// not tracepoints.
func (f *Finder) tracepoints(s *Spec, match func(string) bool) ([]Place, error) {
	dir, err := f.TracingDir()
	if err != nil {
		return nil, err
	}
	file, err := os.Open(filepath.Join(dir, "available_events"))
	if errors.Is(err, fs.ErrPermission) {
		return nil, &machineError{fmt.Errorf("read tracepoints: %w", err), probe.ErrNotPermitted}
	}
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
