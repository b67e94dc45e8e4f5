package source

import (
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/value"
)

// Elapsed adds the column elapsed_ns to the rows that embed it after their first field. Sources set it.
type Elapsed struct {
	Elapsed value.Elapsed `json:"elapsed_ns" col:"TIME(s),width=9,extra" help:"time since the start of the tool (CLOCK_BOOTTIME)"`

	start value.Time
}

// elapsing is a row with Elapsed.
type elapsing interface {
	begin() error
	set(t value.Time)
}

func (e *Elapsed) begin() error {
	now, err := system.BootNow()
	e.start = value.Time(now)
	return err
}

// set takes the time of the row, in CLOCK_BOOTTIME.
func (e *Elapsed) set(t value.Time) { e.Elapsed = value.Elapsed(t - e.start) }
