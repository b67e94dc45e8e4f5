package agent

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestDefaultConfig(t *testing.T) {
	c, err := parseConfig("default.yaml", DefaultConfig)
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	want.Tools = c.Tools
	if c.Listen != want.Listen || c.Interval != want.Interval || c.MaxCPU != want.MaxCPU ||
		c.MaxMemory != want.MaxMemory || c.Series != want.Series {
		t.Errorf("the file has %+v, the defaults are %+v", c, want)
	}
	if len(c.Tools) < 6 {
		t.Errorf("%d tools", len(c.Tools))
	}
}

func TestConfig(t *testing.T) {
	c, err := parseConfig("x", []byte(`
interval: 500ms
max_cpu: 2.5%
max_memory: 1GiB
tools:
  - tool: biotop
    args: [--pid, 12]
    export: {labels: [disk], gauges: [avg_ns], logs: true, metrics: false}
  - {tool: execsnoop, name: execs}
`))
	if err != nil {
		t.Fatal(err)
	}
	if c.Interval != Duration(500*time.Millisecond) || c.MaxCPU != 2.5 || c.MaxMemory != 1<<30 || len(c.Tools) != 2 {
		t.Fatalf("%+v", c)
	}
	e := c.Tools[0]
	if strings.Join(e.Args, " ") != "--pid 12" || (*e.Export.Labels)[0] != "disk" || e.Export.Gauges[0] != "avg_ns" ||
		!*e.Export.Logs || e.wantsMetrics() || e.at.line != 6 {
		t.Errorf("%+v", e)
	}
	if c.Tools[1].name() != "execs" || c.Tools[1].Export.Labels != nil || !c.Tools[1].wantsMetrics() {
		t.Errorf("%+v", c.Tools[1])
	}
}

// TestInvalidConfigs checks that each error names its line and column.
func TestInvalidConfigs(t *testing.T) {
	const tools = "\ntools:\n  - tool: execsnoop\n"
	for text, want := range map[string]string{
		"":                               "x:1:1: the file is empty",
		"# nothing":                      "x:1:1: the file is empty",
		"- a":                            "x:1:1: want keys with values",
		"listen: [a]" + tools:            "x:1:9: want a single value",
		"listen: here" + tools:           "x:1:1: listen: address here: missing port",
		"interval: 10" + tools:           `x:1:11: "10" is not a time above 0 with a unit, such as 10s or 5m`,
		"interval: -1s" + tools:          `x:1:11: "-1s" is not a time`,
		"max_cpu: 1" + tools:             `x:1:10: "1" is not a percentage above 0, such as 1%`,
		"max_cpu: NaN%" + tools:          `x:1:10: "NaN%" is not a percentage`,
		"max_memory: 100" + tools:        `x:1:13: "100" is not a number of KiB, MiB or GiB`,
		"series: {limit: many}" + tools:  `x:1:17: "many" is not a number`,
		"series: {limit: 1}" + tools:     "x:1:1: series.limit: 1 is less than 10",
		"wrong: 1" + tools:               `x:1:1: unknown key "wrong": it must be listen, `,
		"listen: :1\nlisten: :2" + tools: `x:2:1: `,
		"tools: []":                      "x:1:1: no tools are configured",
		"tools: {}":                      "x:1:8: want a list",
		"tools:\n  - args: [a]":          `x:2:5: the entry has no key "tool"`,
		"tools:\n  - tool: a\n    export: {logs: maybe}":     `x:3:20: "maybe" is not a boolean: true or false`,
		"tools:\n  - tool: a\n  - tool: a":                   "x:3:5: a with the same arguments is configured twice",
		"tools:\n  - tool: a\n  - {tool: a, args: [-x]}":     "x:3:5: two entries have the name a in metrics: set \"name\"",
		"tools:\n  - {tool: a, name: A-b}":                   "x:2:5: name \"A-b\": it must consist of lower-case letters, digits and _",
		"tools:\n\t- a":                                      "x: ",
		"tools: &a\n  - tool: b\n    export: {labels: *a}\n": "x:",
		"a: &a [*a]" + tools:                                 "x:",
	} {
		_, err := parseConfig("x", []byte(text))
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(DefaultConfig)
	f.Add([]byte("tools: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := parseConfig("x", text); err != nil && !errors.Is(err, ErrConfig) {
			t.Error(err)
		}
	})
}
