package limit

import (
	"fmt"
	"sync"
)

// maxReports is the maximum number of reports, so that many short-lived processes do not flood
// standard error.
const maxReports = 256

// Reporter reports input that exceeds a limit, once per process and input. A nil Reporter reports
// nothing. It is safe for concurrent use.
type Reporter struct {
	mu    sync.Mutex
	write func(error)
	seen  map[key]bool
}

type key struct {
	pid  int
	text string
}

// NewReporter returns a Reporter that calls write with each report.
func NewReporter(write func(error)) *Reporter {
	return &Reporter{write: write, seen: map[key]bool{}}
}

// Report reports that an input of process pid exceeds a limit; pid is 0 if the input belongs to no
// process. means is the consequence for the output.
func (r *Reporter) Report(pid int, err error, means string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := key{pid, err.Error()}
	if r.seen[k] || len(r.seen) > maxReports {
		return
	}
	r.seen[k] = true
	switch {
	case len(r.seen) > maxReports:
		r.write(fmt.Errorf("more than %d inputs exceed a limit: further ones are not reported", maxReports))
	case pid == 0:
		r.write(fmt.Errorf("%w: %s", err, means))
	default:
		r.write(fmt.Errorf("process %d: %w: %s", pid, err, means))
	}
}
