package otlp

import (
	"context"
	"crypto/rand"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/push"
)

// Profiles sends profiles. The definition of profiles in OTLP is not stable: this is v1development as
// of opentelemetry-proto 1.10 and 1.11, and servers of other versions may show nothing although they
// accept it. It is safe for concurrent use.
type Profiles struct {
	sender   *push.Sender
	envelope envelope
}

// NewProfiles starts to send.
func NewProfiles(c Config, resource []Attribute, version string) (*Profiles, error) {
	sender, err := c.sender()
	if err != nil {
		return nil, err
	}
	return &Profiles{sender, newEnvelope(resource, version)}, nil
}

// Export sends the profile of a tool. It never waits for the network. A profile without samples is
// not sent. The error is always nil.
func (p *Profiles) Export(tool string, profile *flame.Profile) error {
	if len(profile.Samples) == 0 {
		return nil
	}
	d := newDictionary()
	message := appendMessage(nil, fieldRecords, d.profile(tool, profile))
	body := appendMessage(p.envelope.wrap(message), requestDictionary, d.encode())
	p.sender.Send(push.Request{Body: body, ContentType: contentType, Items: 1})
	return nil
}

// Stats returns the counts of profiles.
func (p *Profiles) Stats() push.Stats { return p.sender.Stats() }

// Close sends what is waiting, see [push.Sender.Close].
func (p *Profiles) Close(ctx context.Context) error { return p.sender.Close(ctx) }

// The fields of the messages for profiles.
const (
	requestDictionary = 2

	profileSampleType = 1
	profileSamples    = 2
	profileTime       = 3
	profileDuration   = 4
	profilePeriodType = 5
	profilePeriod     = 6
	profileID         = 7
	profileAttributes = 11

	typeName = 1 // ValueType
	typeUnit = 2

	sampleStack  = 1
	sampleValues = 4

	stackLocations = 1

	locationMapping    = 1
	locationAddress    = 2
	locationLines      = 3
	locationAttributes = 4

	lineFunction = 1
	lineNumber   = 2

	functionName       = 1
	functionSystemName = 2
	functionFile       = 3

	mappingFile       = 4
	mappingAttributes = 5

	attributeKey   = 1 // KeyValueAndUnit
	attributeValue = 2
)

// table has distinct messages. Message 0 is empty, so that index 0 means that there is none.
type table struct {
	indexes  map[string]uint64
	messages []string
}

func newTable() table {
	return table{map[string]uint64{"": 0}, []string{""}}
}

// index returns the index of a message, which is added if it is new.
func (t *table) index(message []byte) uint64 {
	i, ok := t.indexes[string(message)]
	if !ok {
		i = uint64(len(t.messages))
		t.indexes[string(message)] = i
		t.messages = append(t.messages, string(message))
	}
	return i
}

// dictionary has what the samples of a request share.
type dictionary struct {
	mappings, locations, functions, links, strings, attributes, stacks table
}

func newDictionary() *dictionary {
	return &dictionary{newTable(), newTable(), newTable(), newTable(), newTable(), newTable(), newTable()}
}

// encode returns the tables, in the order of their fields.
func (d *dictionary) encode() (out []byte) {
	for i, t := range []*table{&d.mappings, &d.locations, &d.functions, &d.links, &d.strings, &d.attributes, &d.stacks} {
		for _, message := range t.messages {
			out = appendString(out, protowire.Number(i+1), message)
		}
	}
	return out
}

func (d *dictionary) text(s string) uint64 {
	return d.strings.index([]byte(strings.ToValidUTF8(s, "\uFFFD")))
}

func (d *dictionary) attribute(key, value string) uint64 {
	b := appendVarint(nil, attributeKey, d.text(key))
	text := appendString(nil, fieldString, strings.ToValidUTF8(value, "\uFFFD"))
	return d.attributes.index(appendMessage(b, attributeValue, text))
}

// appendIndex appends an index unless it is 0.
func appendIndex(dst []byte, field protowire.Number, index uint64) []byte {
	if index == 0 {
		return dst
	}
	return appendVarint(dst, field, index)
}

// appendPacked appends numbers as one field, if there are any.
func appendPacked(dst []byte, field protowire.Number, numbers ...uint64) []byte {
	if len(numbers) == 0 {
		return dst
	}
	var packed []byte
	for _, n := range numbers {
		packed = protowire.AppendVarint(packed, n)
	}
	return appendMessage(dst, field, packed)
}

func (d *dictionary) valueType(name, unit string) []byte {
	return appendIndex(appendIndex(nil, typeName, d.text(name)), typeUnit, d.text(unit))
}

func (d *dictionary) profile(tool string, p *flame.Profile) []byte {
	kind := d.valueType(tool, string(p.Unit))
	switch p.Unit {
	case flame.Samples:
		kind = d.valueType("samples", "count")
	case flame.Calls:
		kind = d.valueType(tool, "count")
	}
	// Some servers name a profile by the type of its period, and refuse a period of 0.
	periodType, period := kind, uint64(1)
	if p.Period > 0 {
		periodType, period = d.valueType("cpu", "nanoseconds"), p.Period
	}
	out := appendMessage(nil, profileSampleType, kind)
	for i := range p.Samples {
		out = appendMessage(out, profileSamples, d.sample(&p.Samples[i]))
	}
	out = appendFixed64(out, profileTime, uint64(p.Begin.UnixNano()))
	out = appendVarint(out, profileDuration, uint64(p.Length))
	out = appendMessage(out, profilePeriodType, periodType)
	out = appendVarint(out, profilePeriod, period)
	var id [16]byte
	_, _ = rand.Read(id[:]) // does not fail
	out = appendMessage(out, profileID, id[:])
	return appendPacked(out, profileAttributes, d.attribute("corescope.tool", tool))
}

func (d *dictionary) sample(s *flame.Sample) []byte {
	locations := make([]uint64, len(s.Frames))
	for i := range s.Frames {
		locations[len(locations)-1-i] = d.location(&s.Frames[i]) // innermost first
	}
	out := appendIndex(nil, sampleStack, d.stacks.index(appendPacked(nil, stackLocations, locations...)))
	return appendPacked(out, sampleValues, s.Weight)
}

func (d *dictionary) location(f *flame.Frame) uint64 {
	name, file, line := d.text(f.Name), uint64(0), uint64(0)
	var out []byte
	if s := f.Source; s != nil {
		if s.Module != "" {
			out = appendIndex(out, locationMapping, d.mapping(s.Module, s.BuildID))
		}
		out = appendIndex(out, locationAddress, uint64(s.Address))
		if s.File != "" {
			file, line = d.text(s.File), uint64(s.Line)
		}
	}
	function := appendIndex(nil, functionName, name)
	function = appendIndex(function, functionSystemName, name)
	function = appendIndex(function, functionFile, file)
	out = appendMessage(out, locationLines, appendIndex(appendIndex(nil, lineFunction, d.functions.index(function)), lineNumber, line))
	switch f.Kind {
	case flame.Kernel:
		out = appendPacked(out, locationAttributes, d.attribute("profile.frame.type", "kernel"))
	case flame.User:
		out = appendPacked(out, locationAttributes, d.attribute("profile.frame.type", "native"))
	}
	return d.locations.index(out)
}

func (d *dictionary) mapping(file, buildID string) uint64 {
	out := appendIndex(nil, mappingFile, d.text(file))
	if buildID != "" {
		out = appendPacked(out, mappingAttributes, d.attribute("process.executable.build_id.gnu", buildID))
	}
	return d.mappings.index(out)
}
