package limit

// Paths interns the paths of a process's mappings and limits their total length. Many mappings have the
// same path, and a path can have 16 KiB.
type Paths struct {
	interned map[string]string
	size     int
	full     bool
}

// Intern returns path as a string. It returns false if the total length exceeds MappingPaths.
func (p *Paths) Intern(path []byte) (string, bool) {
	if text, ok := p.interned[string(path)]; ok {
		return text, true
	}
	if p.size+len(path) > MappingPaths {
		p.full = true
		return "", false
	}
	if p.interned == nil {
		p.interned = map[string]string{}
	}
	text := string(path)
	p.size += len(path)
	p.interned[text] = text
	return text, true
}

// Exceeded returns the error for a list of mappings whose paths are too long, or else that has too
// many executable mappings.
func (p *Paths) Exceeded(input string) error {
	if p.full {
		return &Error{"paths in " + input, MappingPaths, "bytes"}
	}
	return &Error{input, Mappings, "executable mappings"}
}
