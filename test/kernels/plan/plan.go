// Package plan defines the plan that the host gives to a machine, and the messages of the machine:
// one line of JSON each, over a serial port.
package plan

import "strings"

// Plan lists the tests that a machine runs.
type Plan struct {
	// Hybrid mounts the controllers memory and blkio as cgroup v1, in addition to cgroup v2.
	Hybrid bool
	// Short runs one check per tool, with its default attach types and go test -short.
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
	// Events reports whether it sends events, through a ring buffer or perf buffers.
	Events  bool
	Modules []Module
	// Args are its required arguments.
	Args string
	// Explain are options that add hooks.
	Explain []string
	// Whole is set for test suites that do not belong to a tool: they run once, and short.
	Whole bool
}

// Variant is an attach type of a hook, as --explain of the tool prints it.
type Variant struct {
	Hook, Kind, Where, Result string
	Taken                     bool
}

// Same reports whether both are the same attach type of the same hook.
func (v Variant) Same(other Variant) bool { return v.Hook == other.Hook && v.Kind == other.Kind }

// Works reports whether the kernel supports the attach type.
func (v Variant) Works() bool { return v.Result == "used" || v.Result == "works" }

// Refused reports whether the kernel has the features of the attach type but rejects the program.
func (v Variant) Refused() bool { return strings.HasPrefix(v.Result, "refused") }

// Message is a line that a machine sends.
type Message struct {
	Type MessageType
	// Release is the release of the kernel, in Boot.
	Release string `json:",omitempty"`
	Tool    string `json:",omitempty"`
	// Variants are the attach types of the tool, Error is the reason if there are none.
	Variants []Variant `json:",omitempty"`
	Error    string    `json:",omitempty"`
	Check    *Check    `json:",omitempty"`
}

// MessageType is the type of a message.
type MessageType string

// The messages in order. Those between Boot and End are repeated.
const (
	Boot      MessageType = "boot"
	Explained MessageType = "explained"
	Start     MessageType = "start"
	Done      MessageType = "done"
	// Tested ends a tool's checks.
	Tested MessageType = "tested"
	End    MessageType = "end"
)

// Check is one run of a tool's live tests.
type Check struct {
	Tool string
	// Hook and Kind are the forced attach type; "" runs the tool with its defaults.
	Hook, Kind string
	Perf       bool
	Short      bool

	// Passed counts the tests that passed.
	Passed          int
	Skipped, Failed []Test
	// Unsteady are tests that failed and passed when repeated.
	Unsteady []Test
	// Attrs are the attributes that tests set with testing.T.Attr.
	Attrs   map[string]string `json:",omitempty"`
	Seconds float64
	// Error is the reason if the run as a whole failed.
	Error string `json:",omitempty"`
}

// Test is a test that did not pass, with its output.
type Test struct {
	Name, Output string
}

// Args returns the arguments that the check adds to each run of the tool.
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

// OK reports whether tests ran and none failed.
func (c *Check) OK() bool { return c.Error == "" && len(c.Failed) == 0 && c.Passed > 0 }
