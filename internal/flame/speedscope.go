package flame

import (
	"encoding/json"
	"io"
)

// speedscopeFile is a file in the native format of speedscope:
// https://www.speedscope.app/file-format-schema.json.
type speedscopeFile struct {
	Schema   string              `json:"$schema"`
	Name     string              `json:"name"`
	Exporter string              `json:"exporter"`
	Shared   speedscopeShared    `json:"shared"`
	Profiles []speedscopeProfile `json:"profiles"`
}

type speedscopeShared struct {
	Frames []speedscopeFrame `json:"frames"`
}

type speedscopeFrame struct {
	Name string `json:"name"`
	File string `json:"file,omitempty"`
}

type speedscopeProfile struct {
	Type       string   `json:"type"`
	Name       string   `json:"name"`
	Unit       string   `json:"unit"`
	StartValue uint64   `json:"startValue"`
	EndValue   uint64   `json:"endValue"`
	Samples    [][]int  `json:"samples"`
	Weights    []uint64 `json:"weights"`
}

// Speedscope writes a profile in the JSON format of speedscope.
func Speedscope(w io.Writer, p *Profile) error {
	out := speedscopeProfile{Type: "sampled", Name: p.Title, Unit: p.Unit.speedscope(), Samples: [][]int{}, Weights: []uint64{}}
	frames := []speedscopeFrame{}
	index := map[speedscopeFrame]int{}
	for i := range p.Samples {
		sample := []int{}
		for _, f := range p.Samples[i].Frames {
			key := speedscopeFrame{Name: f.Name}
			if f.Source != nil {
				key.File = f.Source.Module
			}
			n, ok := index[key]
			if !ok {
				n = len(frames)
				index[key] = n
				frames = append(frames, key)
			}
			sample = append(sample, n)
		}
		out.Samples = append(out.Samples, sample)
		out.Weights = append(out.Weights, p.Samples[i].Weight)
		out.EndValue += p.Samples[i].Weight
	}
	return json.NewEncoder(w).Encode(speedscopeFile{
		Schema: "https://www.speedscope.app/file-format-schema.json", Name: p.Title, Exporter: "corescope",
		Shared: speedscopeShared{frames}, Profiles: []speedscopeProfile{out},
	})
}

func (u Unit) speedscope() string {
	if u == Samples || u == Calls {
		return "none"
	}
	return string(u)
}
