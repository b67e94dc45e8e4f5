package unwind

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/limit"
)

// File is struct unwind_file: where the unwind table of a file is.
type File struct {
	// Used is the time of the last use by a BPF program, in ns of CLOCK_MONOTONIC.
	Used uint64 `btf:"used_ns"`
	// Root is the index of the root block. If Levels is 0, the file has no table.
	Root, Levels uint32
	// Base is the file offset of the first row.
	Base uint32
	_    uint32 `btf:"pad"`
}

// Maps are the BPF maps with the unwind tables. They are not safe for concurrent use.
type Maps interface {
	PutRule(at uint32, r Rule) error
	// PutBlock writes a *Leaf or a *Node.
	PutBlock(at uint32, block any) error
	PutFile(id binary.KernelID, f *File) error
	DropFile(id binary.KernelID) error
	// Used returns when a program last used the file, in ns of CLOCK_MONOTONIC.
	Used(id binary.KernelID) (ns uint64, err error)
	// Settle waits until no program uses files that were dropped before the call.
	Settle() error
	// Now returns the current time of the clock of Used.
	Now() (ns uint64)
	Close() error
}

// Limits are the capacities of the maps, and the maximum number of rows and levels per file.
type Limits struct{ Rules, Blocks, Files, Rows, Levels int }

// BlockBytes is the size of a block in bytes.
const BlockBytes = 4 * LeafRows

var (
	// ErrFull is returned for a file whose table does not fit in the memory that is left.
	ErrFull = errors.New("no memory left for its unwind table")
	// ErrLarge is returned for a file whose table exceeds the limits for one file.
	ErrLarge = errors.New("its unwind table is too large")
)

// Tables manages the unwind tables of files. It is not safe for concurrent use.
type Tables struct {
	maps        Maps
	limits      Limits
	rules       map[Rule]uint16
	free        []uint32 // blocks that have been released
	firstUnused uint32   // blocks from this index on have never been used
	files       map[fileKey]*file
	ids         map[binary.KernelID]*file
	vdso        *code
}

// file is the state of a file that was added.
type file struct {
	key    fileKey
	name   string
	head   File
	blocks []uint32
	ids    []binary.KernelID
	// needed is the number of blocks that a refused file needs, or 0; refusedAt is the time.
	needed    int
	refusedAt uint64
	err       error // the reason, returned by put once
}

// New returns Tables that use empty maps.
func New(m Maps, l Limits) *Tables {
	t := &Tables{
		maps: m, limits: l, rules: map[Rule]uint16{0: 0}, files: map[fileKey]*file{}, ids: map[binary.KernelID]*file{},
	}
	t.vdso, _ = readVDSO(l.Rows) // on error, stacks end in functions of the vDSO
	return t
}

// Close closes the maps.
func (t *Tables) Close() error { return t.maps.Close() }

// RetryRefused forgets files that were refused for lack of memory, if stacks still contain them and
// there is enough memory now. Programs then report them as unknown, so that they are added again.
func (t *Tables) RetryRefused() {
	for _, f := range t.files {
		if f.needed == 0 || !t.isDue(f) {
			continue
		}
		f.refusedAt = t.maps.Now()
		if t.updateUsed(f); f.head.Used+uint64(idleAfter) > f.refusedAt && t.available() >= f.needed {
			t.evict([]*file{f})
		}
	}
}

// Has reports whether a file has been added, with or without a table.
func (t *Tables) Has(id binary.KernelID) bool {
	f := t.ids[id]
	return f != nil
}

// Add creates the unwind table of a file. path is where to open it, for example below
// /proc/self/fd; name is used in messages. A file without a table is added as well, so that it is
// not read again.
//
// Returns ErrFull and ErrLarge.
func (t *Tables) Add(id binary.KernelID, path, name string) error {
	if t.Has(id) {
		return nil
	}
	if id.Kind == binary.KindVDSO {
		return t.put(id, t.file(fileKey{vdso: true}, name, t.vdso))
	}
	f, err := binary.Open(path)
	if errors.Is(err, binary.ErrIrregular) { // a device
		return t.put(id, t.file(fileKey{kernel: id}, name, nil))
	}
	if err != nil {
		return err
	}
	defer f.Close()
	key, err := keyOf(f)
	if err != nil {
		return err
	}
	if existing := t.files[key]; existing != nil {
		return t.put(id, existing)
	}
	c, err := readCode(f, t.limits.Rows)
	if errors.Is(err, ErrTooMany) {
		large := t.file(key, name, nil)
		var why *limit.Error // does not contain path
		if errors.As(err, &why) {
			err = why
		}
		t.refuse(large, math.MaxInt, fmt.Errorf("%w: %w", ErrLarge, err))
		return t.put(id, large)
	}
	// If the file cannot be parsed, c is nil.
	return t.put(id, t.file(key, name, c))
}

// file writes the unwind table of a file to blocks, if there are enough.
func (t *Tables) file(key fileKey, name string, c *code) *file {
	f := t.files[key]
	if f == nil {
		f = &file{key: key, name: name}
		t.files[key] = f
	}
	tree := c.tree(t.rule)
	if !t.makeRoom(len(tree.blocks)) || int(tree.levels) > t.limits.Levels {
		t.refuse(f, len(tree.blocks), ErrFull)
	} else if err := t.write(f, tree); err != nil {
		t.release(f)
		t.refuse(f, len(tree.blocks), err)
	}
	return f
}

// refuse records that the table of a file, which needs a number of blocks, was not written.
func (t *Tables) refuse(f *file, needed int, err error) {
	f.needed, f.refusedAt, f.err = needed, t.maps.Now(), fmt.Errorf("%s: %w", f.name, err)
}

func (t *Tables) write(f *file, tree *tree) error {
	for range tree.blocks {
		f.blocks = append(f.blocks, t.block())
	}
	for i, b := range tree.blocks {
		if n, ok := b.(*Node); ok {
			for k := range n.Block {
				n.Block[k] = f.blocks[n.Block[k]]
			}
		}
		if err := t.maps.PutBlock(f.blocks[i], b); err != nil {
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
	if f.head = (File{Levels: tree.levels, Base: tree.base}); tree.levels > 0 {
		f.head.Root = f.blocks[tree.root()]
	}
	return nil
}

// put writes the file to the maps under all of its IDs, including a new one.
func (t *Tables) put(id binary.KernelID, f *file) error {
	if len(t.ids) >= t.limits.Files && t.ids[id] == nil {
		t.evictOldest()
	}
	for _, one := range append(f.ids, id) { // its other IDs may refer to an earlier state without a table
		head := f.head
		head.Used = t.maps.Now()
		if err := t.maps.PutFile(one, &head); err != nil {
			return fmt.Errorf("%s: write entry of unwind table: %w", f.name, err)
		}
	}
	if t.ids[id] != f {
		f.ids = append(f.ids, id)
		t.ids[id] = f
	}
	err := f.err
	f.err = nil
	return err
}

// rule returns the index of a rule, or 0 (no rule) if there are too many rules.
func (t *Tables) rule(r Rule) uint16 {
	n, ok := t.rules[r]
	if ok {
		return n
	}
	if len(t.rules) < min(t.limits.Rules, math.MaxUint16) {
		n = uint16(len(t.rules))
		if t.maps.PutRule(uint32(n), r) != nil {
			n = 0
		}
	}
	t.rules[r] = n
	return n
}

// block returns a free block. The caller has checked that there is one.
func (t *Tables) block() uint32 {
	if n := len(t.free); n > 0 {
		b := t.free[n-1]
		t.free = t.free[:n-1]
		return b
	}
	t.firstUnused++
	return t.firstUnused - 1
}

// freeBlocks returns the number of blocks that are not in use.
func (t *Tables) freeBlocks() int { return len(t.free) + t.limits.Blocks - int(t.firstUnused) }

// idleAfter is the time without use after which a file can be evicted, and the time before a
// refused file is tried again.
const idleAfter = 10 * time.Second

// isDue reports whether a refused file should be tried again.
func (t *Tables) isDue(f *file) bool {
	return f.needed <= t.limits.Blocks && t.maps.Now()-f.refusedAt > uint64(idleAfter)
}

// makeRoom evicts the least recently used files until there are enough free blocks. It returns
// false, without evicting any, if that would require evicting files that are not idle.
func (t *Tables) makeRoom(blocks int) bool {
	if t.freeBlocks() >= blocks {
		return true
	}
	if t.available() < blocks {
		return false
	}
	free, idle := t.freeBlocks(), []*file{}
	for _, f := range t.byLastUse() {
		if free >= blocks {
			break
		}
		free += len(f.blocks)
		idle = append(idle, f)
	}
	t.evict(idle)
	return true
}

// available returns the number of blocks that are free or belong to idle files.
func (t *Tables) available() int {
	n := t.freeBlocks()
	for _, f := range t.byLastUse() {
		if f.head.Used+uint64(idleAfter) <= t.maps.Now() {
			n += len(f.blocks)
		}
	}
	return n
}

// byLastUse returns the files that have tables, the least recently used first.
func (t *Tables) byLastUse() []*file {
	var all []*file
	for _, f := range t.files {
		if len(f.blocks) == 0 {
			continue
		}
		t.updateUsed(f)
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *file) int { return cmp.Compare(a.head.Used, b.head.Used) })
	return all
}

// updateUsed reads the time of the last use of a file from the maps.
func (t *Tables) updateUsed(f *file) {
	f.head.Used = 0
	for _, id := range f.ids {
		if ns, err := t.maps.Used(id); err == nil {
			f.head.Used = max(f.head.Used, ns)
		}
	}
}

// evict removes files. Programs report them as unknown when they need them again.
func (t *Tables) evict(files []*file) {
	for _, f := range files {
		for _, id := range f.ids {
			_ = t.maps.DropFile(id) // the only error is that there is no such file
			delete(t.ids, id)
		}
		delete(t.files, f.key)
	}
	if t.maps.Settle() != nil {
		return // a program may still read the blocks, so they are not reused
	}
	for _, f := range files {
		t.release(f)
	}
}

func (t *Tables) release(f *file) {
	t.free = append(t.free, f.blocks...)
	f.blocks, f.head = nil, File{}
}

// evictOldest evicts the least recently used file.
func (t *Tables) evictOldest() {
	var oldest *file
	at := uint64(math.MaxUint64)
	for id, f := range t.ids {
		if ns, err := t.maps.Used(id); err != nil || ns < at {
			oldest, at = f, ns
		}
	}
	if oldest != nil {
		t.evict([]*file{oldest})
	}
}
