package trace

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
)

// parseCommand interprets the commands "info" and "trace" of ksnoop, the first argument.
func (o *options) parseCommand() {
	if len(o.Probes) < 2 {
		return
	}
	switch o.Probes[0] {
	case "info":
		o.Info = true
	case "trace":
	default:
		return
	}
	o.Probes = o.Probes[1:]
}

// info prints the C declarations of the functions that the probes name.
func (o *options) info(w io.Writer, env *tool.Env) error {
	if len(o.Probes) == 0 {
		return fmt.Errorf("%w: missing function", flags.ErrUsage)
	}
	if err := target.Declare(w, o.Probes, env.KernelTypes); errors.Is(err, btf.ErrNotFound) {
		return flags.Usage(err)
	} else if err != nil {
		return err
	}
	return nil
}
