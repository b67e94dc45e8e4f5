package flame

import (
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/corescope/corescope/internal/value"
)

// The fields of the messages in profile.proto of pprof. The library of pprof is not used, because it
// compiles dozens of regular expressions at the start of each program that links it.
const (
	profileSampleType = 1
	profileSample     = 2
	profileMapping    = 3
	profileLocation   = 4
	profileFunction   = 5
	profileString     = 6
	profileTime       = 9
	profileDuration   = 10
	profilePeriodType = 11
	profilePeriod     = 12

	typeName = 1
	typeUnit = 2

	sampleLocations = 1
	sampleValues    = 2

	mappingID           = 1
	mappingFile         = 5
	mappingBuildID      = 6
	mappingHasFunctions = 7

	locationID      = 1
	locationMapping = 2
	locationAddress = 3
	locationLine    = 4

	lineFunction = 1
	lineNumber   = 2

	functionID         = 1
	functionName       = 2
	functionSystemName = 3
	functionFile       = 4
)

// Pprof writes a compressed profile for `go tool pprof`. Labels become the outermost
// functions.
func Pprof(w io.Writer, p *Profile) error {
	b := pprofBuilder{
		texts: map[string]uint64{}, mappings: map[pprofMapping]uint64{}, functions: map[pprofFunction]uint64{},
		locations: map[pprofLocation]uint64{},
	}
	b.text("") // has index 0
	b.put(profileSampleType, b.valueType(p.sampleType(), p.Unit.pprofName()))
	if p.Period > 0 {
		period := b.valueType("cpu", "nanoseconds")
		b.put(profileSampleType, period)
		b.put(profilePeriodType, period)
	}
	b.out = b.out.number(profileTime, uint64(p.Begin.UnixNano())).number(profileDuration, uint64(p.Length)).number(profilePeriod, p.Period)
	for i := range p.Samples {
		b.add(&p.Samples[i], p.Period)
	}
	z := gzip.NewWriter(w)
	if _, err := z.Write(b.out); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	return nil
}

func (p *Profile) sampleType() string {
	switch p.Unit {
	case Nanoseconds:
		return "time"
	case Bytes:
		return "space"
	}
	return string(p.Unit)
}

// pprofName returns the name of the unit in pprof files.
func (u Unit) pprofName() string {
	if u == Samples || u == Calls {
		return "count"
	}
	return string(u)
}

// message is an encoded message of protobuf.
type message []byte

// The wire types of fields.
const (
	wireNumber = 0
	wireBytes  = 2
)

// number appends a field with a number. A field that is 0 is left out.
func (m message) number(field int, v uint64) message {
	if v == 0 {
		return m
	}
	m = binary.AppendUvarint(m, uint64(field<<3|wireNumber))
	return binary.AppendUvarint(m, v)
}

// message appends a field with a message or a string.
func (m message) message(field int, content message) message {
	m = binary.AppendUvarint(m, uint64(field<<3|wireBytes))
	m = binary.AppendUvarint(m, uint64(len(content)))
	return append(m, content...)
}

type pprofMapping struct{ file, buildID string }

type pprofFunction struct{ name, file string }

type pprofLocation struct {
	mapping uint64
	name    string
	address uint64
}

// pprofBuilder encodes a profile. It assigns IDs to the strings, mappings, functions and locations that
// samples share.
type pprofBuilder struct {
	out       message
	texts     map[string]uint64
	mappings  map[pprofMapping]uint64
	functions map[pprofFunction]uint64
	locations map[pprofLocation]uint64

	ids, values message // scratch
}

// put appends a message to the profile. What content refers to is appended before it is called.
func (b *pprofBuilder) put(field int, content message) { b.out = b.out.message(field, content) }

// text returns the index of a string. A string that is not valid UTF-8 has U+FFFD in place of what is
// invalid, because decoders refuse it otherwise.
func (b *pprofBuilder) text(s string) uint64 {
	s = strings.ToValidUTF8(s, "\uFFFD")
	index, ok := b.texts[s]
	if !ok {
		index = uint64(len(b.texts))
		b.texts[s] = index
		b.put(profileString, message(s))
	}
	return index
}

func (b *pprofBuilder) valueType(name, unit string) message {
	return message{}.number(typeName, b.text(name)).number(typeUnit, b.text(unit))
}

func (b *pprofBuilder) add(s *Sample, period uint64) {
	b.values = binary.AppendUvarint(b.values[:0], s.Weight)
	if period > 0 {
		b.values = binary.AppendUvarint(b.values, s.Weight*period)
	}
	b.ids = b.ids[:0]
	for i := range s.Frames {
		b.ids = binary.AppendUvarint(b.ids, b.location(&s.Frames[len(s.Frames)-1-i]))
	}
	b.put(profileSample, message{}.message(sampleLocations, b.ids).message(sampleValues, b.values))
}

func (b *pprofBuilder) location(f *Frame) uint64 {
	key := pprofLocation{mapping: b.mapping(f), name: f.Name}
	if key.mapping != 0 {
		key.address = uint64(f.Source.Address)
	}
	id := b.locations[key]
	if id == 0 {
		id = uint64(len(b.locations) + 1)
		b.locations[key] = id
		b.put(profileLocation, message{}.number(locationID, id).number(locationMapping, key.mapping).
			number(locationAddress, key.address).message(locationLine, b.line(f)))
	}
	return id
}

// mapping returns the ID of the file of a frame, or 0.
func (b *pprofBuilder) mapping(f *Frame) uint64 {
	if f.Source == nil || f.Source.Module == "" {
		return 0
	}
	key := pprofMapping{f.Source.Module, f.Source.BuildID}
	id := b.mappings[key]
	if id == 0 {
		id = uint64(len(b.mappings) + 1)
		b.mappings[key] = id
		b.put(profileMapping, message{}.number(mappingID, id).number(mappingFile, b.text(key.file)).
			number(mappingBuildID, b.text(key.buildID)).number(mappingHasFunctions, 1))
	}
	return id
}

// line returns the function of a frame and the source line.
func (b *pprofBuilder) line(f *Frame) message {
	if f.Source == nil || f.Source.File == "" {
		return message{}.number(lineFunction, b.function(pprofFunction{name: f.Name}))
	}
	symbol := string(value.AppendEscaped(nil, f.Source.Symbol))
	return message{}.number(lineFunction, b.function(pprofFunction{symbol, f.Source.File})).number(lineNumber, uint64(f.Source.Line))
}

func (b *pprofBuilder) function(key pprofFunction) uint64 {
	id := b.functions[key]
	if id == 0 {
		id = uint64(len(b.functions) + 1)
		b.functions[key] = id
		name := b.text(key.name)
		b.put(profileFunction, message{}.number(functionID, id).number(functionName, name).
			number(functionSystemName, name).number(functionFile, b.text(key.file)))
	}
	return id
}
