package fetch

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/compile"
)

// constants finds the value of a constant: an enumerator of the kernel, a macro of the system call
// interface, or a flag whose value the kernel's tracepoints describe. enumerators may be nil.
func (f *Finder) constants(enumerators func(string) (int64, bool)) func(string) (int64, bool) {
	return func(name string) (int64, bool) {
		if enumerators != nil {
			if n, ok := enumerators(name); ok {
				return n, true
			}
		}
		if n, ok := interfaceConstants()[name]; ok {
			return n, true
		}
		if !strings.HasPrefix(name, "GFP_") && !strings.HasPrefix(name, "__GFP_") {
			return 0, false
		}
		n, ok := f.allocationFlags()[name]
		return n, ok
	}
}

// interfaceConstants returns macros that the system call interface defines: errors, signals and the
// flags of common calls.
var interfaceConstants = sync.OnceValue(func() map[string]int64 {
	all := map[string]int64{
		"NULL": 0, "true": 1, "false": 0,
		"O_RDONLY": unix.O_RDONLY, "O_WRONLY": unix.O_WRONLY, "O_RDWR": unix.O_RDWR, "O_ACCMODE": unix.O_ACCMODE,
		"O_CREAT": unix.O_CREAT, "O_EXCL": unix.O_EXCL, "O_TRUNC": unix.O_TRUNC, "O_APPEND": unix.O_APPEND,
		"O_NONBLOCK": unix.O_NONBLOCK, "O_DSYNC": unix.O_DSYNC, "O_DIRECT": unix.O_DIRECT, "O_DIRECTORY": unix.O_DIRECTORY,
		"O_NOFOLLOW": unix.O_NOFOLLOW, "O_CLOEXEC": unix.O_CLOEXEC, "O_PATH": unix.O_PATH,
		"AT_FDCWD": unix.AT_FDCWD, "PATH_MAX": unix.PathMax,
		"AF_UNSPEC": unix.AF_UNSPEC, "AF_UNIX": unix.AF_UNIX, "AF_INET": unix.AF_INET, "AF_INET6": unix.AF_INET6,
		"AF_NETLINK": unix.AF_NETLINK, "AF_PACKET": unix.AF_PACKET,
		"SOCK_STREAM": unix.SOCK_STREAM, "SOCK_DGRAM": unix.SOCK_DGRAM, "SOCK_RAW": unix.SOCK_RAW,
		"IPPROTO_IP": unix.IPPROTO_IP, "IPPROTO_ICMP": unix.IPPROTO_ICMP, "IPPROTO_TCP": unix.IPPROTO_TCP,
		"IPPROTO_UDP": unix.IPPROTO_UDP, "IPPROTO_IPV6": unix.IPPROTO_IPV6,
		"SOL_SOCKET": unix.SOL_SOCKET,
		"PROT_READ":  unix.PROT_READ, "PROT_WRITE": unix.PROT_WRITE, "PROT_EXEC": unix.PROT_EXEC,
		"MAP_SHARED": unix.MAP_SHARED, "MAP_PRIVATE": unix.MAP_PRIVATE, "MAP_FIXED": unix.MAP_FIXED, "MAP_ANONYMOUS": unix.MAP_ANONYMOUS,
		"S_IFMT": unix.S_IFMT, "S_IFREG": unix.S_IFREG, "S_IFDIR": unix.S_IFDIR, "S_IFLNK": unix.S_IFLNK,
		"S_IFCHR": unix.S_IFCHR, "S_IFBLK": unix.S_IFBLK, "S_IFIFO": unix.S_IFIFO, "S_IFSOCK": unix.S_IFSOCK,
	}
	for n := range int64(4096) {
		if name := unix.ErrnoName(syscall.Errno(n)); name != "" {
			all[name] = n
		}
	}
	for n := range int64(65) {
		if name := unix.SignalName(syscall.Signal(n)); name != "" {
			all[name] = n
		}
	}
	return all
})

// flagSource is the tracepoint whose format has the values of the allocation flags of this kernel.
// They are macros, and change between versions.
const flagSource = "events/kmem/kmalloc/format"

func (f *Finder) allocationFlags() map[string]int64 {
	if f.flags == nil {
		f.flags = map[string]int64{}
		if dir, err := f.TracingDir(); err == nil {
			text, _ := os.ReadFile(filepath.Join(dir, flagSource)) // no flags are known without it
			maps.Copy(f.flags, parseFlags(string(text)))
		}
	}
	return f.flags
}

// parseFlags parses the pairs {VALUE, "NAME"} of a tracepoint's format. A name with a value that is
// not constant is left out.
func parseFlags(format string) map[string]int64 {
	out := map[string]int64{}
	for _, m := range regexp.MustCompile(`\{([^{}"]*), *"(\w+)"\}`).FindAllStringSubmatch(format, -1) {
		if e, err := compile.Parse(m[1]); err == nil {
			if n, ok := compile.Constant(e); ok {
				out[m[2]] = n
			}
		}
	}
	return out
}
