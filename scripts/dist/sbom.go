package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// sbom writes the modules of all programs as CycloneDX. They come from the programs themselves.
func (r *release) sbom() error {
	type use struct {
		module   debug.Module
		programs []string
	}
	modules := map[string]*use{}
	for _, arch := range architectures {
		for _, name := range slices.Sorted(maps.Keys(r.programs[arch])) {
			info, err := buildinfo.Read(bytes.NewReader(r.programs[arch][name]))
			if err != nil {
				return fmt.Errorf("read modules of %s: %w", name, err)
			}
			all := append([]*debug.Module{{Path: "std", Version: info.GoVersion}}, info.Deps...)
			for _, m := range all {
				if m.Replace != nil {
					m = m.Replace
				}
				key := m.Path + "@" + m.Version
				if modules[key] == nil {
					modules[key] = &use{module: *m}
				}
				modules[key].programs = append(modules[key].programs, name+" "+arch)
			}
		}
	}
	version := r.version.String()
	main := cyclonedx.Component{
		BOMRef: "corescope", Type: cyclonedx.ComponentTypeApplication, Name: "corescope", Version: version,
		PackageURL: "pkg:golang/github.com/corescope/corescope@v" + version,
		Licenses:   &cyclonedx.Licenses{{Expression: licence}},
		Properties: &[]cyclonedx.Property{{Name: "corescope:commit", Value: r.version.hash}},
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &main}
	var components []cyclonedx.Component
	var refs []string
	for _, key := range slices.Sorted(maps.Keys(modules)) {
		u := modules[key]
		purl := "pkg:golang/" + key
		var properties []cyclonedx.Property
		for _, p := range u.programs {
			properties = append(properties, cyclonedx.Property{Name: "corescope:program", Value: p})
		}
		if u.module.Sum != "" {
			properties = append(properties, cyclonedx.Property{Name: "corescope:go.sum", Value: u.module.Sum})
		}
		components = append(components, cyclonedx.Component{
			BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: u.module.Path, Version: u.module.Version,
			PackageURL: purl, Scope: cyclonedx.ScopeRequired, Properties: &properties,
		})
		refs = append(refs, purl)
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: "corescope", Dependencies: &refs}}
	var b bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&b, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return fmt.Errorf("encode SBOM: %w", err)
	}
	return r.write("corescope-"+version+".cdx.json", b.Bytes())
}
