package tcpretrans

import "github.com/corescope/corescope/internal/value"

// cause mirrors enum cause.
type cause uint8

func causes() []string {
	return []string{
		bpfCauseCAUSE_TIMEOUT - 1: "timeout", bpfCauseCAUSE_FAST - 1: "fast", bpfCauseCAUSE_SLOW_START - 1: "slow_start",
		bpfCauseCAUSE_PROBE - 1: "probe", bpfCauseCAUSE_NEW_PROBE - 1: "new_probe", bpfCauseCAUSE_SYNACK - 1: "synack",
	}
}

func (v *cause) name() string               { return causes()[(*v-1)%6] }
func (v *cause) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *cause) AppendJSON(b []byte) []byte { return value.AppendString(b, v.name()) }
func (v *cause) Any() any                   { return v.name() }
func (v *cause) Schema() value.Schema       { return value.Schema{Type: "string", Enum: causes()} }

// kind returns L for a tail loss probe, otherwise R.
func (v *cause) kind() string {
	if c := bpfCause(*v); c == bpfCauseCAUSE_PROBE || c == bpfCauseCAUSE_NEW_PROBE {
		return "L"
	}
	return "R"
}
