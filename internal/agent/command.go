package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/corescope/corescope/internal/document"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/manual"
	"github.com/corescope/corescope/internal/tool"
)

// Command is the program corescope-agent.
type Command struct {
	Tools   []*tool.Tool
	Version string
	Out     io.Writer
	ErrOut  io.Writer
	// Reload receives the requests to read the configuration again.
	Reload <-chan os.Signal
}

type options struct {
	Config  string `flag:"config" arg:"FILE" help:"configuration file" unset:"/etc/corescope/agent.yaml by default, or the built-in configuration if that file does not exist"`
	MaxCPU  string `flag:"max-cpu" arg:"PERCENT" help:"limit of the CPU time of BPF programs and agent, such as 2%, in place of max_cpu of the configuration"`
	Check   bool   `flag:"check" help:"check the configuration without loading programs, print its errors with line and column, and exit"`
	Print   bool   `flag:"print-config" help:"print the built-in configuration, and exit"`
	Man     bool   `flag:"man" help:"print the manual page as roff, and exit"`
	Version bool   `flag:"version,V" help:"print the version, and exit"`
}

// Run runs the agent until ctx is done and returns the exit code, one of package tool.
func (c *Command) Run(ctx context.Context, args []string) int {
	err := c.run(ctx, args)
	if err == nil {
		return tool.ExitOK
	}
	fmt.Fprintf(c.ErrOut, "corescope-agent: %v\n", err)
	if errors.Is(err, flags.ErrUsage) || errors.Is(err, ErrConfig) {
		return tool.ExitUsage
	}
	return tool.ExitFailure
}

func (c *Command) run(ctx context.Context, args []string) error {
	var o options
	set := flags.New("corescope-agent")
	if err := set.Add(&o, nil); err != nil {
		return err
	}
	if err := set.Parse(args); errors.Is(err, flags.ErrHelp) {
		return described(set).Help(c.Out)
	} else if err != nil {
		return fmt.Errorf("%w (see corescope agent --help)", err)
	}
	a := &Agent{Tools: c.Tools, Path: o.Config, Version: c.Version, ErrOut: c.ErrOut, Own: true}
	if o.MaxCPU != "" {
		if err := a.MaxCPU.parse(o.MaxCPU); err != nil {
			return fmt.Errorf("%w: --max-cpu: %w", flags.ErrUsage, err)
		}
	}
	switch {
	case o.Version:
		return c.write("corescope-agent " + c.Version + "\n")
	case o.Print:
		return c.write(string(DefaultConfig))
	case o.Man:
		return c.write(manualPage(set).Roff())
	case o.Check:
		_, err := a.Check()
		return err
	}
	return a.Run(ctx, c.Reload)
}

func (c *Command) write(text string) error {
	if _, err := io.WriteString(c.Out, text); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

const summary = "Export the output of corescope's tools to Prometheus and OpenTelemetry"

// described describes the flags.
func described(set *flags.Set) *document.Tool {
	return &document.Tool{
		Name: "corescope-agent", Summary: summary,
		Flags: []document.FlagGroup{{Title: "Flags", Flags: set.All()}},
		Examples: []string{
			"corescope agent                                # the built-in configuration",
			"corescope agent --print-config >agent.yaml     # a configuration to start from",
			"corescope agent --config agent.yaml --check    # errors, with line and column",
		},
	}
}

// manualPage returns the manual page.
func manualPage(set *flags.Set) *manual.Page {
	p := manual.New("8", summary, "corescope-agent")
	p.Section("SYNOPSIS")
	p.Code("corescope-agent [flags]\ncorescope agent [flags]\n")
	p.Section("DESCRIPTION")
	p.Text(description)
	p.Section("OPTIONS")
	for _, f := range set.All() {
		p.Item("--"+f.Long, f.Arg, f.Help)
	}
	p.Section("CONFIGURATION")
	p.Text("The configuration is a YAML file with these keys. Its defaults are those of the built-in configuration (--print-config).")
	describeKeys(p, "", reflect.TypeFor[Config]())
	p.Section("METRICS")
	p.Text(metricsText)
	p.Section("SIGNALS")
	p.Item("SIGHUP", "", "reads the configuration again. If it is valid, tools that are new or differ start, those that it no longer contains stop, and others continue. "+
		"If not, the previous one remains in use, and corescope_config_last_reload_successful is 0. Changes of listen, web_config, series, otlp and pyroscope need a restart.")
	p.Item("SIGINT, SIGTERM", "", "stop all tools and end the agent.")
	p.Section("EXIT STATUS")
	p.Text("0 after a signal; 1 after a failure; 2 for wrong arguments or an invalid configuration.")
	p.Section("SEE ALSO")
	p.Text("corescope(1)")
	return p
}

const description = `Runs tools of corescope in one process and exports what they observe: counts, distributions and numbers of events as metrics that Prometheus reads from /metrics. Each tool has the arguments of its command line, with the same filters.

A tool that cannot start, fails or panics is reported, in the last case with a stack, and starts again after one second, then after two, and so on up to five minutes; the others continue. Losses are metrics too, by tool and reason.

/healthz answers while the process runs; /readyz answers 200 when the hooks of all tools are attached that max_cpu does not pause, otherwise 503 with the reasons. The agent listens on the loopback address unless the configuration says otherwise.`

const metricsText = `Names have the prefix corescope_ and the name of the entry. The tool's columns define the metrics: columns whose values add up become counters; the values of a histogram become a histogram in seconds or bytes, with the buckets of a native histogram (schema 3, counted in the kernel) and classic buckets that are powers of two; events are counted in corescope_NAME_events_total. Labels are columns with few values, such as disk, container or syscall, unless export.labels lists others.

If CPU time exceeds max_cpu, the agent makes tools whose counts can be estimated, runqlat and syscount, count one of N events, chosen at random, as N. Their counts and sums are estimates while corescope_tool_sampling is more than 1: the expectation is the right number, and the standard deviation of a count n is the square root of n(N-1). Tools whose output is events count all of them, or are paused.

Counters never decrease while a series exists. Series that exceed the limit are counted in one with the label otel_metric_overflow="true", so that totals stay right.

About the agent itself: corescope_tool_up, corescope_tool_rows_total, corescope_tool_lost_total by reason, corescope_tool_failures_total, corescope_tool_paused, corescope_tool_sampling and corescope_tool_cpu_ratio, each by tool, and corescope_tool_program_cpu_ratio by tool and program; corescope_config_last_reload_successful and corescope_config_reloads_total by result; corescope_export_queued_bytes and corescope_export_lost_total by signal; corescope_agent_cpu_seconds_total and corescope_agent_memory_bytes. Those about the state of a tool are removed when a reload removes the tool.`

// describeKeys adds the keys of a struct of the configuration.
func describeKeys(p *manual.Page, prefix string, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		switch elem := f.Type; {
		case f.Tag.Get("help") != "":
			p.Item(prefix+key, "", f.Tag.Get("help"))
		case elem.Kind() == reflect.Slice:
			describeKeys(p, prefix+key+"[].", elem.Elem())
		default:
			describeKeys(p, prefix+key+".", elem)
		}
	}
}
