package binary

import (
	"path"
	"slices"
)

// Files says which files are meant: libc, wherever a process has one.
type Files struct {
	// Names are patterns of file names, as path.Match has them: "libssl.so*". Whatever
	// file of such a name a process has mapped as code is meant. Without any, none is.
	Names []string
	// Paths are files in our own mount namespace; with them, Names mean nothing.
	Paths []string
	// Extra are such files beside those of the names.
	Extra []string
	// Programs means also the programs that processes execute, whatever their names, that
	// export one of the functions: those that have a library linked in.
	Programs bool
	// PIDs restricts the files to those that these processes map, and adds the programs that
	// they execute, whatever their names: these may be linked statically.
	PIDs []uint32
	// Has, if set, reports which processes are meant beside PIDs: those that these start.
	Has func(pid uint32) bool
	// Alone leaves all processes but PIDs as they are: else these are stopped at the places too,
	// and go on as the programs find that they are not meant. The programs then end with the
	// first thread of the process, which is told.
	Alone bool
	// Prefix begins the names of all functions in these files: je_ where malloc is je_malloc.
	Prefix string
}

// Symbol is what the files call a function.
func (f *Files) Symbol(function string) string { return f.Prefix + function }

// Processes are those that programs are attached for, 0 being all there are.
func (f *Files) Processes() []uint32 {
	if f.Alone && len(f.PIDs) > 0 {
		return f.PIDs
	}
	return []uint32{0}
}

// Wants tells whether the mapping is of a file that is meant by its name.
func (f *Files) Wants(m *Mapped) bool {
	if !f.follows(m) {
		return false
	}
	base := m.Base()
	for _, name := range f.Names {
		if ok, _ := path.Match(name, base); ok {
			return true
		}
	}
	return len(f.PIDs) > 0 && m.IsProgram()
}

// WantsProgram tells whether the mapping is of a program that is meant if it exports one
// of the functions.
func (f *Files) WantsProgram(m *Mapped) bool { return f.Programs && f.follows(m) && m.IsProgram() }

func (f *Files) follows(m *Mapped) bool {
	return len(f.Names) > 0 && len(f.Paths) == 0 && f.IsOf(m.PID)
}

// IsOf reports whether the process is meant.
func (f *Files) IsOf(pid uint32) bool {
	return len(f.PIDs) == 0 || slices.Contains(f.PIDs, pid) || f.Has != nil && f.Has(pid)
}

// Libc returns the patterns of the file names that a C library has: those of glibc, of glibc before 2.34, and
// of musl, whose file is called libc.so where a distribution installs it beside glibc.
func Libc() []string {
	return []string{"libc.so.6", "libc-2.*.so", "ld-musl-*.so.1", "libc.musl-*.so.1", "libc.so"}
}
