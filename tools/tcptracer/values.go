package tcptracer

import "github.com/corescope/corescope/internal/value"

// kind mirrors enum kind. Text uses the letters of the peers.
type kind uint8

func kinds() []string {
	return []string{bpfKindKIND_CONNECT - 1: "connect", bpfKindKIND_ACCEPT - 1: "accept", bpfKindKIND_CLOSE - 1: "close"}
}

func (v *kind) name() string               { return kinds()[(*v-1)%3] }
func (v *kind) AppendText(b []byte) []byte { return append(b, "CAX"[(*v-1)%3]) }
func (v *kind) AppendJSON(b []byte) []byte { return value.AppendString(b, v.name()) }
func (v *kind) Any() any                   { return v.name() }
func (v *kind) Schema() value.Schema       { return value.Schema{Type: "string", Enum: kinds()} }
