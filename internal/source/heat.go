package source

import (
	"fmt"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/heatmap"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// heatInterval is the time per column of a heat map if the command line sets no interval.
const heatInterval = time.Second

// Formats lists the values of --output for heat maps. Reports of totals since the start have none.
func (h *Hists[K, L]) Formats() []output.Format {
	if h.Cumulative {
		return nil
	}
	return []output.Format{svg, page}
}

// heat records the histograms of a run for a heat map, which is written at the end of the run. It is nil
// in other formats.
type heat struct {
	*heatmap.Recorder
	begin time.Time // of the current interval
}

// newHeat returns nil if the output is not a heat map.
func (h *hists) newHeat(s *tool.Session) *heat {
	if f := s.Out.Format(); f != svg && f != page {
		return nil
	}
	if s.Interval == 0 {
		s.Interval = heatInterval
	}
	return &heat{Recorder: heatmap.New(s.Name(), h.unit, h.slots), begin: time.Now()}
}

// write writes the heat maps of the run.
func (h *heat) write(s *tool.Session) error {
	lost, err := s.Lost()
	if err != nil {
		return err
	}
	if lost > 0 {
		h.SetLost(fmt.Sprintf("%d values or events were lost and are missing.", lost))
	}
	if s.Out.Format() == svg {
		err = h.SVG(s.Terminal)
	} else {
		err = h.HTML(s.Terminal)
	}
	if err != nil {
		return fmt.Errorf("write heat map: %w", err)
	}
	return nil
}

// heading returns the key of a histogram in one line: "disk = vda, flags = Read". The functions of
// a stack are separated by " < ", from callee to caller.
func heading(key []column.Column) string {
	var parts []string
	for i := range key {
		text := string(appendKey(nil, &key[i]))
		if lines, ok := key[i].Value.(value.Lines); ok {
			var frames []string
			for line := range strings.Lines(string(lines.AppendLines(nil))) {
				frames = append(frames, strings.TrimSpace(line))
			}
			text = strings.Join(frames, " < ")
		}
		if !key[i].Bare {
			text = key[i].Key + " = " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
