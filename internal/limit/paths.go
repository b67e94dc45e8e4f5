package limit

// Paths interns the paths of a process's mappings, whose length together is limited: many mappings have
// the same path, and each path can have 16 KiB.
type Paths struct {
	known map[string]string
	size  int
	full  bool
}

// Intern returns path as a string. It returns false if the paths are too long together.
func (p *Paths) Intern(path []byte) (string, bool) {
	if known, ok := p.known[string(path)]; ok {
		return known, true
	}
	if p.size+len(path) > MappingPaths {
		p.full = true
		return "", false
	}
	if p.known == nil {
		p.known = map[string]string{}
	}
	text := string(path)
	p.size += len(path)
	p.known[text] = text
	return text, true
}

// Exceeded returns the error for a list of mappings that has too many, or too long paths.
func (p *Paths) Exceeded(input string) error {
	if p.full {
		return &Error{"paths in " + input, MappingPaths, "bytes"}
	}
	return &Error{input, Mappings, "executable mappings"}
}
