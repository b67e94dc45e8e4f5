package tcpretrans

import "github.com/corescope/corescope/internal/value"

// cause is enum cause.
type cause uint8

// Loss probes, which send again or send what is new.
const (
	probe    cause = 4
	newProbe cause = 5
)

func causes() []string {
	return []string{"timeout", "fast", "slow_start", "probe", "new_probe", "synack"}
}

func (v *cause) name() string               { return causes()[(*v-1)%6] }
func (v *cause) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *cause) AppendJSON(b []byte) []byte { return value.AppendString(b, v.name()) }
func (v *cause) Any() any                   { return v.name() }
func (v *cause) Schema() value.Schema       { return value.Schema{Type: "string", Enum: causes()} }

// kind is R, or L for a tail loss probe.
func (v *cause) kind() string {
	if *v == probe || *v == newProbe {
		return "L"
	}
	return "R"
}
