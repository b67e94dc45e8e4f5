// Package limit bounds the memory that input from other processes can take: perf maps, ELF files,
// mappings, command lines, files of container runtimes. corescope often runs as root and reads what
// any user can write, so every reader of such input has one of the limits below. Input that exceeds a
// limit is truncated or ignored, and reported as an *Error.
package limit

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Limits of files that JIT compilers write, for each file.
const (
	// PerfMapBytes is the number of bytes read from the end of a perf map. They are not kept in memory.
	PerfMapBytes = 256 << 20
	// JITDumpBytes is the number of bytes read from a jitdump, without the machine code that it
	// contains. They are not kept in memory.
	JITDumpBytes = 1 << 30
	// JITFunctions is the number of functions of a perf map or jitdump.
	JITFunctions = 1 << 20
	// JITNames is the total length of their names in bytes.
	JITNames = 64 << 20
)

// Limits of ELF files. For comparison, libLLVM 14 has 40 sections and 3 MiB of .eh_frame, and a
// chromium with debugging symbols has 1.2 million symbols with 150 MB of names.
const (
	// Sections is the number of sections.
	Sections = 1024
	// SectionNames is the size of the section names.
	SectionNames = 64 << 10
	// SmallSection is the size of a section with a few records: .gnu_debuglink, .go.module.
	SmallSection = 64 << 10
	// Symbols is the number of entries of a symbol table.
	Symbols = 2 << 20
	// SymbolNames is the size of the string table of a symbol table.
	SymbolNames = 160 << 20
	// Functions is the number of functions that probes can be attached to.
	Functions = 1 << 20
	// Notes is the size of a section of notes: build IDs and USDT probes.
	Notes = 4 << 20
	// Relocations is the size of a section of relocations.
	Relocations = 64 << 20
	// GoTable is the size of a section with the function table of a Go program.
	GoTable = 128 << 20
	// MiniDebug is the decompressed size of .gnu_debugdata.
	MiniDebug = 64 << 20
	// Frames is the size of .eh_frame, FrameFunctions the number of functions in it.
	Frames         = 64 << 20
	FrameFunctions = 1 << 20
	// FrameRules is the number of rules in .eh_frame: one for each address where a frame changes.
	FrameRules = 8 << 20
	// FrameProgram is the size of the rules of one function.
	FrameProgram = 1 << 20
	// Code is the number of bytes of machine code that are decoded per file, Jumps the number of its
	// jumps between functions.
	Code  = 1 << 30
	Jumps = 4 << 20
	// Debug is the decompressed size of the debugging information that --lines and --inlines read.
	Debug = 512 << 20
	// DebugFile is the size of a debug file that is read for its checksum.
	DebugFile = 4 << 30
)

// Limits of /proc/PID and of files of container runtimes.
const (
	// Mappings is the number of executable mappings of a process.
	Mappings = 16 << 10
	// MappingPaths is the total length of their paths in bytes.
	MappingPaths = 8 << 20
	// MappedFiles is the number of different files in the mappings of all processes. MappingPaths
	// applies to their paths together.
	MappedFiles = 4 << 10
	// Arguments is the size of a command line. Linux allows 6 MiB, and a process can make
	// /proc/PID/cmdline show any part of its memory (prctl(2), PR_SET_MM).
	Arguments = 1 << 20
	// Snapshots is the memory in bytes for the mappings of all processes that are symbolized. The
	// least recently symbolized process is evicted first.
	Snapshots = 128 << 20
	// RuntimeFile is the size of a file of a container runtime.
	RuntimeFile = 4 << 20
	// RuntimeName is the length of a name of a container, pod or namespace.
	RuntimeName = 1024
)

// ErrExceeded is matched by every *Error.
var ErrExceeded = errors.New("input exceeds a limit")

// Error is input that exceeds a limit.
type Error struct {
	// Input is a path, or a part of a file: "section .symtab of /bin/a".
	Input string
	Max   int64
	// Unit is what Max counts: "bytes", "functions".
	Unit string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s has more than %d %s", e.Input, e.Max, e.Unit)
}

// Is reports whether target is ErrExceeded.
func (e *Error) Is(target error) bool { return target == ErrExceeded }

// ReadFile reads a regular file. If the file has more than max bytes, it returns the first max bytes
// and an *Error. It returns an error for other types of files, without blocking on a FIFO or
// accessing a device.
func ReadFile(path string, max int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > max {
		return data[:max], &Error{path, max, "bytes"}
	}
	return data, nil
}
