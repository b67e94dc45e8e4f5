// Package plan is what the host asks of a machine, and what the machine answers: one
// JSON message a line over a serial port.
package plan

import "strings"

// Plan is what a machine does.
type Plan struct {
	// Hybrid mounts the memory and blkio controllers as cgroup v1 beside cgroup v2.
	Hybrid bool
	// Short has one check a tool: as the tool comes, without what takes long (go test
	// -short).
	Short bool
	// Modules are loaded at the start, Tool.Modules before the tool's checks.
	Modules []Module
	Tools   []Tool
}

// Module is a kernel module, a file below /modules, with its parameters.
type Module struct {
	File, Params string
}

// Tool is a tool to test.
type Tool struct {
	Name string
	// Events tells that it sends events, by a ring or a perf buffer.
	Events  bool
	Modules []Module
	// Args are what it does not run without.
	Args string
	// Explain are options with which it has hooks that it has not without.
	Explain []string
	// Whole is of tests that are no tool's: they run once, and short.
	Whole bool
}

// Way is a variant of a hook as the tool's --explain tells it.
type Way struct {
	Hook, Kind, Where, Result string
	Taken                     bool
}

// Same tells whether both are the same variant of the same hook.
func (w Way) Same(other Way) bool { return w.Hook == other.Hook && w.Kind == other.Kind }

// Works tells whether the kernel has this way.
func (w Way) Works() bool { return w.Result == "taken" || w.Result == "works" }

// Refused tells that the kernel has what the way needs, but does not take the program.
func (w Way) Refused() bool { return strings.HasPrefix(w.Result, "refused") }

// Message is one line of a machine.
type Message struct {
	Type MessageType
	// Release is the kernel's, of Boot.
	Release string `json:",omitempty"`
	Tool    string `json:",omitempty"`
	// Ways are those of the tool, and Error is why there are none.
	Ways  []Way  `json:",omitempty"`
	Error string `json:",omitempty"`
	Check *Check `json:",omitempty"`
}

// MessageType is what a message tells.
type MessageType string

// The messages in their order; those between Boot and End come again and again.
const (
	Boot  MessageType = "boot"
	Ways  MessageType = "ways"
	Start MessageType = "start"
	Done  MessageType = "done"
	// Tested ends a tool's checks.
	Tested MessageType = "tested"
	End    MessageType = "end"
)

// Check is one run of a tool's live tests.
type Check struct {
	Tool string
	// Hook and Kind are the way that was forced; "" runs the tool as it comes.
	Hook, Kind string
	Perf       bool
	Short      bool

	// Passed counts the tests that passed.
	Passed          int
	Skipped, Failed []Test
	// Unsteady are tests that failed and then passed, in a short run.
	Unsteady []Test
	// Attrs are what the tests told by testing.T.Attr.
	Attrs   map[string]string `json:",omitempty"`
	Seconds float64
	// Error is why the run as a whole is no good.
	Error string `json:",omitempty"`
}

// Test is a test that did not pass, with what it printed.
type Test struct {
	Name, Output string
}

// Args are the arguments that the check gives to every run of the tool.
func (c *Check) Args() []string {
	var args []string
	if c.Hook != "" {
		args = append(args, "--hook", c.Hook+"="+c.Kind)
	}
	if c.Perf {
		args = append(args, "--perf-buffer")
	}
	return args
}

func (c *Check) String() string {
	return strings.Join(append([]string{c.Tool}, c.Args()...), " ")
}

// OK tells that tests ran, and none failed.
func (c *Check) OK() bool { return c.Error == "" && len(c.Failed) == 0 && c.Passed > 0 }
