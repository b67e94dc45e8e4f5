package otlp

import (
	"math"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Attribute is a name and a value. The value is not retained by functions that take attributes.
type Attribute struct {
	key    string
	kind   kind
	text   string
	number uint64 // as encoded, for all kinds of numbers
	list   []string
}

type kind uint8

const (
	kindString kind = iota
	kindInt
	kindFloat
	kindBool
	kindList
)

// String returns an attribute with a string. If it is not valid UTF-8, it is sent with U+FFFD
// instead of what is invalid, and an attribute with the suffix "_bytes" has the exact bytes.
func String(key, value string) Attribute {
	return Attribute{key: key, kind: kindString, text: value}
}

// Strings returns an attribute with an array of strings.
func Strings(key string, values []string) Attribute {
	return Attribute{key: key, kind: kindList, list: values}
}

// Int returns an attribute with a number.
func Int(key string, value int64) Attribute {
	return Attribute{key: key, kind: kindInt, number: uint64(value)}
}

// Uint returns an attribute with a number. One that exceeds the range of OTLP, which has signed
// numbers, is sent as text.
func Uint(key string, value uint64) Attribute {
	if value > math.MaxInt64 {
		return String(key, formatUint(value))
	}
	return Attribute{key: key, kind: kindInt, number: value}
}

// Float returns an attribute with a floating-point number.
func Float(key string, value float64) Attribute {
	return Attribute{key: key, kind: kindFloat, number: math.Float64bits(value)}
}

// Bool returns an attribute with a truth value.
func Bool(key string, value bool) Attribute {
	a := Attribute{key: key, kind: kindBool}
	if value {
		a.number = 1
	}
	return a
}

// The numbers of fields that several messages have in common.
const (
	fieldResource = 1 // ResourceLogs, ResourceMetrics
	fieldScopes   = 2
	fieldScope    = 1 // ScopeLogs, ScopeMetrics
	fieldRecords  = 2 // log_records, metrics

	fieldKey    = 1 // KeyValue
	fieldValue  = 2
	fieldString = 1 // AnyValue
	fieldBool   = 2
	fieldInt    = 3
	fieldDouble = 4
	fieldArray  = 5
	fieldBytes  = 7
)

// encoder appends messages. Messages within messages are first encoded in a buffer of their own,
// because their length precedes them. The buffers are used again.
type encoder struct {
	pair, value []byte
}

func appendMessage(dst []byte, field protowire.Number, message []byte) []byte {
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	return protowire.AppendBytes(dst, message)
}

func appendString(dst []byte, field protowire.Number, s string) []byte {
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	return protowire.AppendString(dst, s)
}

func appendFixed64(dst []byte, field protowire.Number, v uint64) []byte {
	dst = protowire.AppendTag(dst, field, protowire.Fixed64Type)
	return protowire.AppendFixed64(dst, v)
}

func appendVarint(dst []byte, field protowire.Number, v uint64) []byte {
	dst = protowire.AppendTag(dst, field, protowire.VarintType)
	return protowire.AppendVarint(dst, v)
}

// attribute appends an attribute, as field of a message. Strings in protobuf are valid UTF-8.
func (e *encoder) attribute(dst []byte, field protowire.Number, a *Attribute) []byte {
	e.value = e.value[:0]
	valid := true
	switch a.kind {
	case kindString:
		valid = utf8.ValidString(a.text)
		e.value = appendString(e.value, fieldString, toValid(a.text, valid))
	case kindBool:
		e.value = appendVarint(e.value, fieldBool, a.number)
	case kindInt:
		e.value = appendVarint(e.value, fieldInt, a.number)
	case kindFloat:
		e.value = appendFixed64(e.value, fieldDouble, a.number)
	case kindList:
		for _, s := range a.list {
			ok := utf8.ValidString(s)
			valid = valid && ok
			e.value = appendElement(e.value, fieldString, toValid(s, ok))
		}
		e.value = appendArray(e.value)
	}
	dst = e.keyValue(dst, field, a.key, "")
	if valid {
		return dst
	}
	e.value = e.value[:0]
	if a.kind == kindString {
		e.value = appendString(e.value, fieldBytes, a.text)
	} else {
		for _, s := range a.list {
			e.value = appendElement(e.value, fieldBytes, s)
		}
		e.value = appendArray(e.value)
	}
	return e.keyValue(dst, field, a.key, "_bytes")
}

func toValid(s string, valid bool) string {
	if valid {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// appendElement appends an AnyValue to an ArrayValue.
func appendElement(dst []byte, field protowire.Number, s string) []byte {
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(protowire.SizeTag(field)+protowire.SizeBytes(len(s))))
	return appendString(dst, field, s)
}

// appendArray returns an AnyValue with an array of the given elements.
func appendArray(elements []byte) []byte {
	return appendMessage(nil, fieldArray, elements)
}

// keyValue appends a KeyValue with the current value.
func (e *encoder) keyValue(dst []byte, field protowire.Number, key, suffix string) []byte {
	e.pair = protowire.AppendTag(e.pair[:0], fieldKey, protowire.BytesType)
	e.pair = protowire.AppendVarint(e.pair, uint64(len(key)+len(suffix)))
	e.pair = append(append(e.pair, key...), suffix...)
	e.pair = appendMessage(e.pair, fieldValue, e.value)
	return appendMessage(dst, field, e.pair)
}

// envelope has what precedes the records of each request.
type envelope struct {
	resource, scope []byte // fields with their tags
}

// newEnvelope encodes the resource and the name and version of this program.
func newEnvelope(resource []Attribute, version string) envelope {
	var e encoder
	var message, scope []byte
	for i := range resource {
		message = e.attribute(message, 1, &resource[i])
	}
	scope = appendString(scope, 1, "corescope")
	scope = appendString(scope, 2, version)
	return envelope{appendMessage(nil, fieldResource, message), appendMessage(nil, fieldScope, scope)}
}

// wrap returns a request with records, which are encoded as fields with their tags: metrics and logs
// have messages of the same shape.
func (v *envelope) wrap(records []byte) []byte {
	scopes := len(v.scope) + len(records)
	resources := len(v.resource) + protowire.SizeTag(fieldScopes) + protowire.SizeBytes(scopes)
	out := make([]byte, 0, 1+protowire.SizeBytes(resources))
	out = protowire.AppendTag(out, 1, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(resources))
	out = append(out, v.resource...)
	out = protowire.AppendTag(out, fieldScopes, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(scopes))
	out = append(out, v.scope...)
	return append(out, records...)
}

// rejected decodes partial_success of a response: how many records were rejected, and why.
func rejected(response []byte) (items uint64, reason string) {
	each(response, func(field protowire.Number, _ uint64, partial []byte) {
		if field != 1 {
			return
		}
		each(partial, func(field protowire.Number, n uint64, text []byte) {
			switch field {
			case 1:
				items = max(n, items)
			case 2:
				reason = string(text)
			}
		})
	})
	if items > math.MaxInt64 { // a negative number
		return 0, reason
	}
	return items, reason
}

// statusText returns the message of google.rpc.Status, or the response itself if it is text.
func statusText(response []byte) (text string) {
	each(response, func(field protowire.Number, _ uint64, b []byte) {
		if field == 2 {
			text = string(b)
		}
	})
	if text == "" && utf8.Valid(response) {
		return strings.TrimSpace(string(response))
	}
	return text
}

// each calls f for each field of a message that is a number or has bytes, until one is malformed.
func each(message []byte, f func(field protowire.Number, number uint64, bytes []byte)) {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		var number uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(field, kind, message)
		}
		if n < 0 {
			return
		}
		f(field, number, bytes)
		message = message[n:]
	}
}
