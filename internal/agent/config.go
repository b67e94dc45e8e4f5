package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/corescope/corescope/internal/metric"
)

// Config is the configuration of an agent. The help tags are the descriptions in the manual page.
type Config struct {
	Listen    string    `yaml:"listen" help:"address of /metrics, /healthz and /readyz"`
	WebConfig string    `yaml:"web_config" help:"file with TLS and basic authentication, in the format of Prometheus exporters"`
	Interval  Duration  `yaml:"interval" help:"time between reports of tools whose arguments set none"`
	MaxCPU    Percent   `yaml:"max_cpu" help:"limit of the CPU time of BPF programs and agent, in percent of one CPU; above it, tools whose counts can be estimated count one of up to 64 events, and if that cannot suffice, the most expensive tool is paused for ten minutes"`
	MaxMemory Size      `yaml:"max_memory" help:"memory of the agent above which it collects garbage more often (a soft limit)"`
	Series    Series    `yaml:"series"`
	OTLP      OTLP      `yaml:"otlp"`
	Pyroscope Pyroscope `yaml:"pyroscope"`
	Tools     []Entry   `yaml:"tools"`
}

// Series limits the series of metrics.
type Series struct {
	Limit int      `yaml:"limit" help:"series per metric; further ones are counted in a single series"`
	TTL   Duration `yaml:"ttl" help:"time after which a series that does not change is removed"`
}

// OTLP selects what is sent to an OpenTelemetry collector. The variables OTEL_EXPORTER_OTLP_* set how.
type OTLP struct {
	Endpoint string   `yaml:"endpoint" help:"base URL of a collector (OTLP/HTTP); the variables OTEL_EXPORTER_OTLP_* are used too"`
	Metrics  bool     `yaml:"metrics" help:"true to send metrics"`
	Interval Duration `yaml:"interval" help:"time between two exports of metrics"`
	Profiles bool     `yaml:"experimental_profiles" help:"true to send the stacks of tools such as profile; OTLP's definition of profiles is not stable (v1development), and collectors accept them only when asked to"`
}

// Pyroscope selects the server that receives the counts by stack of tools such as profile.
type Pyroscope struct {
	URL string `yaml:"url" help:"URL of a Pyroscope server, which receives the stacks of tools such as profile"`
}

// Entry is a tool with its command line.
type Entry struct {
	Tool   string   `yaml:"tool" help:"name of the tool"`
	Name   string   `yaml:"name" help:"name in metrics, by default that of the tool"`
	Args   []string `yaml:"args" help:"arguments of the tool, as on its command line"`
	Export Export   `yaml:"export"`

	at position
}

// Export selects what is exported of a tool.
type Export struct {
	Metrics    *bool     `yaml:"metrics" help:"false to export no metrics"`
	Labels     *[]string `yaml:"labels" help:"columns that become labels of metrics, in place of the default ones; process IDs, names of tasks, paths and addresses are no labels unless they are listed here"`
	Gauges     []string  `yaml:"gauges" help:"further columns whose latest values become metrics"`
	Logs       *bool     `yaml:"logs" help:"true to send each event as a log record"`
	Attributes *[]string `yaml:"attributes" help:"columns of log records, in place of the default ones, which exclude arguments, paths and contents"`
}

// isSame reports whether two entries have equal settings.
func (e *Entry) isSame(other *Entry) bool {
	a, b := *e, *other
	a.at, b.at = position{}, position{}
	return reflect.DeepEqual(a, b)
}

// Duration is a time with a unit, such as 10s or 5m.
type Duration time.Duration

// UnmarshalYAML parses the time.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil || v <= 0 {
		return fmt.Errorf("%q is not a time above 0 with a unit, such as 10s or 5m", n.Value)
	}
	*d = Duration(v)
	return nil
}

// Percent is a share, such as 1%.
type Percent float64

// UnmarshalYAML parses the share.
func (p *Percent) UnmarshalYAML(n *yaml.Node) error { return p.parse(n.Value) }

func (p *Percent) parse(text string) error {
	number, ok := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || !(v > 0) || math.IsInf(v, 0) {
		return fmt.Errorf("%q is not a percentage above 0, such as 1%%", text)
	}
	*p = Percent(v)
	return nil
}

// Size is a number of bytes, such as 200MiB.
type Size uint64

// UnmarshalYAML parses the number.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	for unit, factor := range map[string]uint64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if text, ok := strings.CutSuffix(n.Value, unit); ok {
			if v, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32); err == nil && v > 0 {
				*s = Size(v * factor)
				return nil
			}
		}
	}
	return fmt.Errorf("%q is not a number of KiB, MiB or GiB, such as 200MiB", n.Value)
}

// Defaults returns the configuration without tools.
func Defaults() Config {
	return Config{
		Listen: "127.0.0.1:9760", Interval: Duration(10 * time.Second), MaxCPU: 1, MaxMemory: 200 << 20,
		Series: Series{Limit: 2000, TTL: Duration(5 * time.Minute)},
		OTLP:   OTLP{Interval: Duration(time.Minute)},
	}
}

// position is a place in the configuration.
type position struct {
	file         string
	line, column int
}

func (p position) String() string { return fmt.Sprintf("%s:%d:%d", p.file, p.line, p.column) }

// errorf returns an error at a position.
func (p position) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", p, fmt.Errorf(format, args...))
}

// DefaultPath is the file of the configuration unless another one is set. If it does not exist,
// DefaultConfig is used.
const DefaultPath = "/etc/corescope/agent.yaml"

// ErrConfig is returned for a configuration that is not valid.
var ErrConfig = errors.New("the configuration is not valid")

// ReadConfig reads a configuration, or the default one if path is "". Settings that it does not contain
// have their defaults. Errors state line and column; all are returned, joined.
//
// Returns ErrConfig.
func ReadConfig(path string) (*Config, error) {
	text, err := os.ReadFile(cmp.Or(path, DefaultPath))
	if path == "" && errors.Is(err, fs.ErrNotExist) {
		return parseConfig("the built-in configuration", DefaultConfig)
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return parseConfig(cmp.Or(path, DefaultPath), text)
}

// invalid joins errors as ErrConfig. It returns nil if there are none.
func invalid(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w:\n%w", ErrConfig, err)
	}
	return nil
}

func parseConfig(path string, text []byte) (*Config, error) {
	c := Defaults()
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, invalid(fmt.Errorf("%s: %w", path, err))
	}
	if len(doc.Content) == 0 {
		return nil, invalid(position{path, 1, 1}.errorf("the file is empty"))
	}
	d := decoder{file: path}
	d.decode(doc.Content[0], reflect.ValueOf(&c).Elem())
	if len(d.errs) == 0 {
		d.check(&c, doc.Content[0])
	}
	return &c, invalid(d.errs...)
}

// decoder assigns YAML nodes to fields. Unlike the library it reports each error with its column.
type decoder struct {
	file string
	errs []error
}

func (d *decoder) at(n *yaml.Node) position { return position{d.file, n.Line, n.Column} }

func (d *decoder) fail(n *yaml.Node, format string, args ...any) {
	d.errs = append(d.errs, d.at(n).errorf(format, args...))
}

func (d *decoder) decode(n *yaml.Node, v reflect.Value) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	_, isCustom := v.Addr().Interface().(yaml.Unmarshaler)
	switch {
	case isCustom && n.Kind != yaml.ScalarNode:
		d.fail(n, "want a single value")
	case isCustom:
		if err := v.Addr().Interface().(yaml.Unmarshaler).UnmarshalYAML(n); err != nil {
			d.fail(n, "%w", err)
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem())
	case v.Kind() == reflect.Struct:
		d.decodeStruct(n, v)
	case v.Kind() == reflect.Slice:
		d.decodeList(n, v)
	case n.Kind != yaml.ScalarNode:
		d.fail(n, "want a single value")
	case v.Kind() == reflect.String:
		v.SetString(n.Value) // numbers are valid arguments
	default:
		if err := n.Decode(v.Addr().Interface()); err != nil {
			d.fail(n, "%q is not a %s", n.Value, kindName(v.Kind()))
		}
	}
}

func kindName(k reflect.Kind) string {
	if k == reflect.Bool {
		return "boolean: true or false"
	}
	return "number"
}

func (d *decoder) decodeList(n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, "want a list")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		d.decode(item, v.Index(i))
	}
}

func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, "want keys with values")
		return
	}
	if e, ok := v.Addr().Interface().(*Entry); ok {
		e.at = d.at(n)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		field, all := fieldOf(v, key.Value)
		switch {
		case !field.IsValid():
			d.fail(key, "unknown key %q: it must be %s", key.Value, strings.Join(all, ", "))
		case seen[key.Value]:
			d.fail(key, "key %q is set twice", key.Value)
		default:
			d.decode(n.Content[i+1], field)
		}
		seen[key.Value] = true
	}
}

// fieldOf returns the field of a key, and all keys.
func fieldOf(v reflect.Value, key string) (field reflect.Value, all []string) {
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("yaml")
		if name == "" {
			continue
		}
		all = append(all, name)
		if name == key {
			field = v.Field(i)
		}
	}
	return field, all
}

// check checks values that depend on each other.
func (d *decoder) check(c *Config, n *yaml.Node) {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		d.fail(n, "listen: %w", err)
	}
	if c.Series.Limit < 10 {
		d.fail(n, "series.limit: %d is less than 10", c.Series.Limit)
	}
	if len(c.Tools) == 0 {
		d.fail(n, "no tools are configured")
	}
	for i := range c.Tools {
		e := &c.Tools[i]
		if e.Tool == "" {
			d.errs = append(d.errs, e.at.errorf("the entry has no key \"tool\""))
			continue
		}
		if !metric.ValidLabel(e.name()) {
			d.errs = append(d.errs, e.at.errorf("name %q: it must consist of lower-case letters, digits and _", e.name()))
		}
		switch {
		case slices.ContainsFunc(c.Tools[:i], e.isSameRun):
			d.errs = append(d.errs, e.at.errorf("%s with the same arguments is configured twice", e.Tool))
		case slices.ContainsFunc(c.Tools[:i], func(other Entry) bool { return e.name() == other.name() }):
			d.errs = append(d.errs, e.at.errorf("two entries have the name %s in metrics: set \"name\"", e.name()))
		}
	}
}

// isSameRun reports whether two entries run the same command line.
func (e *Entry) isSameRun(other Entry) bool {
	return e.Tool == other.Tool && slices.Equal(e.Args, other.Args)
}
