package stack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// ErrRestricted is returned when /proc/kallsyms shows every address as zero.
var ErrRestricted = errors.New("the kernel hides its addresses: to symbolize kernel frames, " +
	"kernel.kptr_restrict must be below 2 for a process with CAP_SYSLOG; " +
	"for others it must be 0, and kernel.perf_event_paranoid below 2")

// Kernel symbolizes kernel addresses. It is safe for concurrent use.
type Kernel struct {
	path string // /proc/kallsyms, or "" if the symbols are fixed (ParseKallsyms)
	now  func() time.Time

	mu    sync.Mutex
	ask   func(addr uint64) (string, error) // or nil: see Ask
	known map[uint64]kernelSymbol           // answers of ask for functions of the kernel itself
	table *table
	err   error
	next  time.Time // earliest time of the next read
	names map[int]kernelName
}

type kernelName struct {
	name, module string
	padding      bool
}

// NewKernel returns a Kernel that reads /proc/kallsyms when it is first used, or when Ask is not
// sufficient. It reads the file again, at most once a second and for at most 5 % of the time, for
// addresses without a symbol and for addresses of BPF programs, which are loaded and unloaded and reuse
// each other's addresses. Such an address gets the symbol that it has when Append is called.
func NewKernel() *Kernel {
	return &Kernel{path: "/proc/kallsyms", now: time.Now}
}

// ParseKallsyms returns a Kernel with the symbols in r, in the format of /proc/kallsyms. It never
// reads them again. The error is ErrRestricted if all addresses are zero.
func ParseKallsyms(r io.Reader) (*Kernel, error) {
	t, err := parseKallsyms(r)
	return &Kernel{table: t, err: err}, err
}

// Load reads the symbols if they have not been read. The error is ErrRestricted, or that of reading
// /proc/kallsyms. Append can be called in spite of an error.
func (k *Kernel) Load() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.load()
}

func (k *Kernel) load() error {
	if k.table == nil && k.err == nil {
		k.table, k.err = k.read()
	}
	return k.err
}

func (k *Kernel) read() (*table, error) {
	const minInterval, share = time.Second, 20 // the read takes at most 1/share of the time
	began := k.now()
	defer func() {
		now := k.now()
		k.next = now.Add(max(minInterval, share*now.Sub(began)))
	}()
	f, err := os.Open(k.path)
	if err != nil {
		return nil, fmt.Errorf("open kernel symbols: %w", err)
	}
	defer f.Close()
	return parseKallsyms(f)
}

// refresh reads the symbols again if k.next has passed, and reports whether it did.
func (k *Kernel) refresh() bool {
	if k.path == "" || k.now().Before(k.next) {
		return false
	}
	t, err := k.read()
	if err != nil {
		return false
	}
	k.table, k.names = t, nil
	return true
}

// Append appends one frame per address of a kernel stack trace, innermost first. It stops at a zero
// address.
func (k *Kernel) Append(dst []Frame, addrs []uint64) []Frame {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, addr := range addrs {
		if addr == 0 {
			break
		}
		f := Frame{Addr: addr, Module: "[kernel]", Offset: addr, Kernel: true, Reason: NoSymbols}
		if !k.resolveAsked(&f, i > 0) {
			k.resolveRead(&f, i > 0)
		}
		dst = append(dst, f)
	}
	return dst
}

// resolveRead sets the symbol of f from /proc/kallsyms, or the reason why it has none.
func (k *Kernel) resolveRead(f *Frame, isReturn bool) {
	err := k.load()
	if errors.Is(err, ErrRestricted) {
		f.Reason = Restricted
		return
	}
	if err != nil {
		f.Reason = Unreadable
		return
	}
	i := k.lookup(f.Addr, isReturn)
	if (i < 0 || k.name(i).module == "[bpf]") && k.refresh() {
		i = k.lookup(f.Addr, isReturn)
	}
	if i < 0 {
		return
	}
	n := k.name(i)
	f.Name, f.Module, f.Reason = n.name, n.module, Named
	f.Offset = f.Addr - k.table.starts[i]
}

// lookup returns the index of the symbol of an address, or -1. An address right after padding is
// not a return address, because padding contains no calls: it is the first instruction of a
// function, where the task was interrupted.
func (k *Kernel) lookup(addr uint64, isReturn bool) int {
	if isReturn {
		if i := k.table.lookup(addr - 1); i >= 0 && !k.name(i).padding {
			return i
		}
	}
	return k.table.lookup(addr)
}

func (k *Kernel) name(i int) kernelName {
	if n, ok := k.names[i]; ok {
		return n
	}
	name, module, ok := strings.Cut(string(k.table.name(i)), "\t")
	if !ok {
		module = "[kernel]"
	}
	n := kernelName{demangle(name), module, isPadding(name)}
	if k.names == nil {
		k.names = make(map[int]kernelName)
	}
	k.names[i] = n
	return n
}
