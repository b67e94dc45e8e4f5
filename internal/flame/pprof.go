package flame

import (
	"fmt"
	"io"

	"github.com/google/pprof/profile"

	"github.com/corescope/corescope/internal/value"
)

// Pprof writes a compressed profile for `go tool pprof`. Labels become the outermost
// functions.
func Pprof(w io.Writer, p *Profile) error {
	b := pprofBuilder{
		profile: &profile.Profile{
			SampleType: []*profile.ValueType{{Type: p.sampleType(), Unit: p.Unit.pprofName()}},
			TimeNanos:  p.Begin.UnixNano(), DurationNanos: int64(p.Length),
		},
		mappings: map[pprofMapping]*profile.Mapping{}, functions: map[pprofFunction]*profile.Function{},
		locations: map[pprofLocation]*profile.Location{},
	}
	if p.Period > 0 {
		b.profile.PeriodType = &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
		b.profile.Period = int64(p.Period)
		b.profile.SampleType = append(b.profile.SampleType, b.profile.PeriodType)
	}
	for i := range p.Samples {
		b.add(&p.Samples[i], p.Period)
	}
	if err := b.profile.CheckValid(); err != nil {
		return fmt.Errorf("check pprof profile: %w", err)
	}
	return b.profile.Write(w)
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

type pprofMapping struct{ file, buildID string }

type pprofFunction struct{ name, file string }

type pprofLocation struct {
	mapping uint64
	name    string
	address uint64
}

// pprofBuilder assigns IDs to the mappings, functions and locations that samples share.
type pprofBuilder struct {
	profile   *profile.Profile
	mappings  map[pprofMapping]*profile.Mapping
	functions map[pprofFunction]*profile.Function
	locations map[pprofLocation]*profile.Location
}

func (b *pprofBuilder) add(s *Sample, period uint64) {
	sample := &profile.Sample{Value: []int64{int64(s.Weight)}}
	if period > 0 {
		sample.Value = append(sample.Value, int64(s.Weight*period))
	}
	for i := range s.Frames {
		sample.Location = append(sample.Location, b.location(&s.Frames[len(s.Frames)-1-i]))
	}
	b.profile.Sample = append(b.profile.Sample, sample)
}

func (b *pprofBuilder) location(f *Frame) *profile.Location {
	key := pprofLocation{name: f.Name}
	mapping := b.mapping(f)
	if mapping != nil {
		key.mapping = mapping.ID
		key.address = uint64(f.Source.Address)
	}
	l := b.locations[key]
	if l == nil {
		l = &profile.Location{
			ID: uint64(len(b.profile.Location) + 1), Mapping: mapping, Address: key.address,
			Line: []profile.Line{b.line(f)},
		}
		b.locations[key] = l
		b.profile.Location = append(b.profile.Location, l)
	}
	return l
}

func (b *pprofBuilder) mapping(f *Frame) *profile.Mapping {
	if f.Source == nil || f.Source.Module == "" {
		return nil
	}
	key := pprofMapping{f.Source.Module, f.Source.BuildID}
	m := b.mappings[key]
	if m == nil {
		m = &profile.Mapping{ID: uint64(len(b.profile.Mapping) + 1), File: key.file, BuildID: key.buildID, HasFunctions: true}
		b.mappings[key] = m
		b.profile.Mapping = append(b.profile.Mapping, m)
	}
	return m
}

// line returns the function of a frame and the source line.
func (b *pprofBuilder) line(f *Frame) profile.Line {
	if f.Source == nil || f.Source.File == "" {
		return profile.Line{Function: b.function(pprofFunction{name: f.Name})}
	}
	symbol := string(value.AppendEscaped(nil, f.Source.Symbol))
	return profile.Line{Function: b.function(pprofFunction{symbol, f.Source.File}), Line: int64(f.Source.Line)}
}

func (b *pprofBuilder) function(key pprofFunction) *profile.Function {
	fn := b.functions[key]
	if fn == nil {
		fn = &profile.Function{ID: uint64(len(b.profile.Function) + 1), Name: key.name, SystemName: key.name, Filename: key.file}
		b.functions[key] = fn
		b.profile.Function = append(b.profile.Function, fn)
	}
	return fn
}
