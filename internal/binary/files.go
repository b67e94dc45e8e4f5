package binary

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Files selects the files that uprobes are attached to, such as the C library of each process.
type Files struct {
	// Names are patterns of file names for path.Match, such as "libssl.so*". Each matching file
	// that a process maps executable is selected.
	Names []string
	// Paths are files. If set, Names is ignored. An absolute path is below the root directory of
	// each of PIDs if it exists there, and otherwise in corescope's mount namespace.
	Paths []string
	// Extra are files that are selected in addition to Names. They are found as Paths are.
	Extra []string
	// Installed are patterns of paths (filepath.Glob) in corescope's mount namespace. Files that exist
	// there are selected although no process maps them, so that short-lived processes are observed
	// from their first instruction on. It is ignored with Paths, and with PIDs unless Has is set.
	Installed []string
	// Programs also selects executables that export one of the functions, whatever their names:
	// they link the library statically.
	Programs bool
	// PIDs restricts the files to those that these processes map, and adds their executables,
	// whatever their names, because these can link the library statically.
	PIDs []uint32
	// Has, if set, reports further processes that count as PIDs: descendants of these.
	Has func(pid uint32) bool
	// Alone attaches the probes to PIDs only. Otherwise other processes that map the files hit
	// the probes too, and the BPF programs filter them out. The kernel removes such a probe when
	// the thread-group leader exits; this is reported.
	Alone bool
	// Whole is set if a file is expected to have all functions. Those that it lacks are reported.
	Whole bool
	// Prefix is the prefix of all function names in these files: "je_" if malloc is je_malloc.
	Prefix string
	// Renamed maps symbols to the functions that they stand for. The usual names of these functions
	// are then ignored.
	Renamed map[string]string
}

// Symbol returns the symbol name of a function in these files. If there are several, they are joined.
func (f *Files) Symbol(function string) string {
	var symbols []string
	for symbol, of := range f.Renamed {
		if of == function {
			symbols = append(symbols, symbol)
		}
	}
	if len(symbols) > 0 {
		slices.Sort(symbols)
		return strings.Join(symbols, ", ")
	}
	return f.Prefix + function
}

// Function returns the function of a symbol, and false if the symbol is not that of a function.
func (f *Files) Function(symbol string) (string, bool) {
	if function := f.Renamed[symbol]; function != "" {
		return function, true
	}
	function, ok := strings.CutPrefix(symbol, f.Prefix)
	for _, of := range f.Renamed {
		ok = ok && of != function
	}
	return function, ok
}

// Processes returns the processes that probes are attached to; 0 means all processes.
func (f *Files) Processes() []uint32 {
	if f.Alone && len(f.PIDs) > 0 {
		return f.PIDs
	}
	return []uint32{0}
}

// Wants reports whether Names, or PIDs for an executable, select the mapped file.
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

// WantsProgram reports whether the mapped file is an executable that is selected if it exports one
// of the functions.
func (f *Files) WantsProgram(m *Mapped) bool { return f.Programs && f.follows(m) && m.IsProgram() }

func (f *Files) follows(m *Mapped) bool {
	return len(f.Names) > 0 && len(f.Paths) == 0 && f.Includes(m.PID)
}

// Includes reports whether the process is selected.
func (f *Files) Includes(pid uint32) bool {
	return len(f.PIDs) == 0 || slices.Contains(f.PIDs, pid) || f.Has != nil && f.Has(pid)
}

// OpenPath opens the files that a path of Paths or Extra leads to: one, or several if PIDs have
// different root directories.
func (f *Files) OpenPath(path string) ([]*File, error) {
	var all []*File
	if filepath.IsAbs(path) && f.Has == nil { // a command has corescope's root
		for _, pid := range f.PIDs {
			if file, err := OpenInRoot(pid, path); err == nil {
				all = append(all, file)
			}
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	return []*File{file}, nil
}

// InstalledPaths lists the existing files that Installed selects.
func (f *Files) InstalledPaths() (paths []string) {
	if len(f.Paths) > 0 || len(f.PIDs) > 0 && f.Has == nil {
		return nil
	}
	for _, pattern := range f.Installed {
		found, _ := filepath.Glob(pattern) // the patterns are constants and well-formed
		paths = append(paths, found...)
	}
	return paths
}

// InstalledMusl returns patterns of the paths where musl is installed: on systems that use it, and on
// Debian in addition to glibc. Seldom does a process map it all the time there.
func InstalledMusl() []string {
	return []string{"/lib/ld-musl-*.so.1", "/usr/lib/*-linux-musl/libc.so"}
}

// Libc returns the file name patterns of C libraries: glibc, glibc before 2.34, and musl, which is
// named libc.so where a distribution installs it in addition to glibc.
func Libc() []string {
	return []string{"libc.so.6", "libc-2.*.so", "ld-musl-*.so.1", "libc.musl-*.so.1", "libc.so"}
}
