package agent

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/corescope/corescope/internal/metric"
	"github.com/corescope/corescope/internal/system"
)

// process are the metrics about the process of the agent.
type process struct {
	cpu    *metric.Counter
	memory *metric.Gauge

	mutex   sync.Mutex
	counted time.Duration // of cpu
}

func newProcess(store *metric.Store) (*process, error) {
	var p process
	var errs [2]error
	p.cpu, errs[0] = store.Counter(metric.Description{
		Name: []string{"agent", "cpu"}, Unit: metric.Seconds, Divisor: 1e9, Permanent: true,
		Help: "CPU time of the agent, without that of programs in the context of other tasks.",
	})
	p.memory, errs[1] = store.Gauge(metric.Description{
		Name: []string{"agent", "memory"}, Unit: metric.Bytes, Permanent: true,
		Help: "Memory of the agent that belongs to no file.",
	})
	return &p, errors.Join(errs[:]...)
}

// update updates the metrics. The memory keeps its value if it cannot be read.
func (p *process) update() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if cpu := system.ProcessCPU(); cpu > p.counted {
		p.cpu.Add(uint64(cpu - p.counted))
		p.counted = cpu
	}
	if n, err := anonymous(); err == nil {
		p.memory.Set(float64(n))
	}
}

// anonymous returns the resident memory of this process that belongs to no file, in bytes.
func anonymous() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("read own memory: %w", err)
	}
	var size, resident, shared uint64 // pages; shared are those of files and shared memory
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared); err != nil {
		return 0, fmt.Errorf("read own memory: parse %q: %w", text, err)
	}
	return (resident - min(shared, resident)) * uint64(os.Getpagesize()), nil
}
