package source

import (
	"fmt"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
)

// Sampled is the option of tools that sample CPUs at a frequency.
type Sampled struct {
	Frequency uint64 `flag:"frequency,f" arg:"HZ" min:"1" max:"100000" help:"samples per second and CPU"`
}

// DefaultSampled is 99 samples per second, which do not coincide with activities that occur 100
// times a second.
func DefaultSampled() Sampled { return Sampled{99} }

// Plan returns a plan for programs that sample all CPUs.
func (s Sampled) Plan() tool.Plan {
	return tool.Plan{
		Sampling: tool.Sampling{Frequency: s.Frequency},
		Resolve:  func(*tool.Plan, *tool.Kernel) error { return CheckFrequency(s.Frequency) },
	}
}

// CheckFrequency returns a usage error if --frequency exceeds the limit of the kernel.
func CheckFrequency(hz uint64) error {
	if limit := system.MaxSampleRate("/"); hz > limit {
		return fmt.Errorf("%w: --frequency %d: kernel.perf_event_max_sample_rate allows at most %d", flags.ErrUsage, hz, limit)
	}
	return nil
}
