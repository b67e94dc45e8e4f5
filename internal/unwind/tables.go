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

// File is struct unwind_file: where the table of a file is.
type File struct {
	// Used is when a program used it last, in ns of CLOCK_MONOTONIC.
	Used uint64 `btf:"used_ns"`
	// Root is a block. Without Levels the file has no table.
	Root, Levels uint32
	// Base is the file offset of the first row.
	Base uint32
	_    uint32 `btf:"pad"`
}

// Maps are what the kernel's programs read. They are changed by one goroutine.
type Maps interface {
	PutRule(at uint32, r Rule) error
	// PutBlock writes a *Leaf or a *Node.
	PutBlock(at uint32, block any) error
	PutFile(id binary.KernelID, f *File) error
	DropFile(id binary.KernelID) error
	// Used is when programs used the file last.
	Used(id binary.KernelID) (ns uint64, err error)
	// Settle returns once no program uses what was dropped before.
	Settle() error
	// Now is the clock of Used.
	Now() (ns uint64)
	Close() error
}

// Limits are the capacity of the maps, and the maximum number of rows and levels of a file's table.
type Limits struct{ Rules, Blocks, Files, Rows, Levels int }

// BlockBytes is the size of a block.
const BlockBytes = 4 * LeafRows

var (
	// ErrFull is returned for a file whose table does not fit beside those in use.
	ErrFull = errors.New("no memory left for its unwind table")
	// ErrLarge is returned for a file whose table would be larger than that of one file may be.
	ErrLarge = errors.New("its unwind table is too large")
)

// Tables are the tables of files. They are one goroutine's.
type Tables struct {
	maps   Maps
	limits Limits
	rules  map[Rule]uint16
	free   []uint32 // blocks that were given back
	unused uint32   // blocks from here on were never used
	files  map[fileKey]*file
	ids    map[binary.KernelID]*file
	vdso   *vdso
}

// file is a file that was looked at.
type file struct {
	key    fileKey
	name   string
	head   File
	blocks []uint32
	ids    []binary.KernelID
	// lacks is how many blocks it needs, where they were not to be had; tried is when that was.
	lacks int
	tried uint64
	err   error // why, to be returned once
}

// New returns tables that are kept in the maps, which are empty.
func New(m Maps, l Limits) *Tables {
	t := &Tables{
		maps: m, limits: l, rules: map[Rule]uint16{0: 0}, files: map[fileKey]*file{}, ids: map[binary.KernelID]*file{},
	}
	t.vdso, _ = readVDSO(l.Rows) // without it calls of its functions end there
	return t
}

// Close frees the maps.
func (t *Tables) Close() error { return t.maps.Close() }

// Review has files tried again that did not fit, if stacks lead through them still and others
// have become idle: programs find them unknown, and user space hears of them anew.
func (t *Tables) Review() {
	for _, f := range t.files {
		if f.lacks == 0 || !t.isDue(f) {
			continue
		}
		f.tried = t.maps.Now()
		if t.use(f); f.head.Used+uint64(idleAfter) > f.tried && t.room() >= f.lacks {
			t.evict([]*file{f})
		}
	}
}

// Has tells whether the file was looked at, and whether there is nothing more to do for it.
func (t *Tables) Has(id binary.KernelID) bool {
	f := t.ids[id]
	return f != nil
}

// Add makes the table of a file, whose name is for messages. The path leads to it, and may be
// a link below /proc/self/fd. What has no table is remembered too.
//
// Returns ErrFull and ErrLarge.
func (t *Tables) Add(id binary.KernelID, path, name string) error {
	if t.Has(id) {
		return nil
	}
	if id.Kind == binary.KindVDSO {
		return t.put(id, t.file(fileKey{vdso: true}, name, t.vdso.rows()))
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
	if known := t.files[key]; known != nil {
		return t.put(id, known)
	}
	rows, err := readRows(f, t.limits.Rows)
	if errors.Is(err, ErrTooMany) {
		large := t.file(key, name, nil)
		var why *limit.Error // without the path that the file was read by
		if errors.As(err, &why) {
			err = why
		}
		t.refuse(large, math.MaxInt, fmt.Errorf("%w: %w", ErrLarge, err))
		return t.put(id, large)
	}
	// What cannot be parsed has no rows.
	return t.put(id, t.file(key, name, rows))
}

// file writes the rows of a file into blocks, if there are any left.
func (t *Tables) file(key fileKey, name string, rows []Row) *file {
	f := t.files[key]
	if f == nil {
		f = &file{key: key, name: name}
		t.files[key] = f
	}
	tree := newTree(rows, t.rule)
	if !t.makeRoom(len(tree.blocks)) || int(tree.levels) > t.limits.Levels {
		t.refuse(f, len(tree.blocks), ErrFull)
	} else if err := t.write(f, tree); err != nil {
		t.release(f)
		t.refuse(f, len(tree.blocks), err)
	}
	return f
}

func (t *Tables) refuse(f *file, lacks int, err error) {
	f.lacks, f.tried, f.err = lacks, t.maps.Now(), fmt.Errorf("%s: %w", f.name, err)
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

// put lets programs find the file by an id.
func (t *Tables) put(id binary.KernelID, f *file) error {
	if len(t.ids) >= t.limits.Files && t.ids[id] == nil {
		t.evictOldest()
	}
	for _, one := range append(f.ids, id) { // those it had already may get their table only now
		head := f.head
		head.Used = t.maps.Now()
		if err := t.maps.PutFile(one, &head); err != nil {
			return fmt.Errorf("%s: write file of unwind table: %w", f.name, err)
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

// rule returns the number of a rule: that of no rule, where there are too many.
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

// block returns a free block; there is one.
func (t *Tables) block() uint32 {
	if n := len(t.free); n > 0 {
		b := t.free[n-1]
		t.free = t.free[:n-1]
		return b
	}
	t.unused++
	return t.unused - 1
}

func (t *Tables) left() int { return len(t.free) + t.limits.Blocks - int(t.unused) }

// idleAfter is how long a file has not been used that is evicted for another, and how long
// one that did not fit waits until it is tried again.
const idleAfter = 10 * time.Second

// isDue tells whether a file that did not fit is to be tried again.
func (t *Tables) isDue(f *file) bool {
	return f.lacks <= t.limits.Blocks && t.maps.Now()-f.tried > uint64(idleAfter)
}

// makeRoom evicts the files that have not been used for the longest time, until there are
// so many blocks, and is false if those in use leave less.
func (t *Tables) makeRoom(blocks int) bool {
	if t.left() >= blocks {
		return true
	}
	if t.room() < blocks {
		return false
	}
	room, idle := t.left(), []*file{}
	for _, f := range t.byUse() {
		if room >= blocks {
			break
		}
		room += len(f.blocks)
		idle = append(idle, f)
	}
	t.evict(idle)
	return true
}

// room is how many blocks there are once all files are evicted that are not in use.
func (t *Tables) room() int {
	room := t.left()
	for _, f := range t.byUse() {
		if f.head.Used+uint64(idleAfter) <= t.maps.Now() {
			room += len(f.blocks)
		}
	}
	return room
}

// byUse lists the files that have tables, the one that was used longest ago first.
func (t *Tables) byUse() []*file {
	var all []*file
	for _, f := range t.files {
		if len(f.blocks) == 0 {
			continue
		}
		t.use(f)
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *file) int { return cmp.Compare(a.head.Used, b.head.Used) })
	return all
}

// use reads when the file was used last.
func (t *Tables) use(f *file) {
	f.head.Used = 0
	for _, id := range f.ids {
		if ns, err := t.maps.Used(id); err == nil {
			f.head.Used = max(f.head.Used, ns)
		}
	}
}

// evict forgets files; programs tell when they need them again.
func (t *Tables) evict(files []*file) {
	for _, f := range files {
		for _, id := range f.ids {
			_ = t.maps.DropFile(id) // there is no other error than that it is not there
			delete(t.ids, id)
		}
		delete(t.files, f.key)
	}
	if t.maps.Settle() != nil {
		return // a program may still read the blocks: they are not used again
	}
	for _, f := range files {
		t.release(f)
	}
}

func (t *Tables) release(f *file) {
	t.free = append(t.free, f.blocks...)
	f.blocks, f.head = nil, File{}
}

// evictOldest makes room for another id.
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
