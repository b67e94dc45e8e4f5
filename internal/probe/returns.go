package probe

import (
	"debug/elf"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/code"
)

// ErrUnsafeReturn is returned for a function whose returns can only be observed by a uretprobe that
// could break the program.
//
// A uretprobe replaces the return address on the stack, so unwinders do not find the caller. An
// exception that leaves the function or passes through it aborts the program, and the destructors
// of a cancelled thread do not run.
var ErrUnsafeReturn = errors.New("returns cannot be observed without risk for the program")

// form is how a program for the return of a user function is attached: enum return_form in
// return.bpf.h.
type form uint8

const (
	// afterReturn is a uretprobe.
	afterReturn form = iota
	// atReturn is a uprobe at a return instruction that only calls of this function reach.
	atReturn
	// atSharedReturn is a uprobe at a return instruction of another function, which this
	// function jumps to.
	atSharedReturn
)

// formFunction is the function of a program that returns its form (return.bpf.h).
const formFunction = "return_form"

// formSeparator is between the name of a program and the number of its form.
const formSeparator = "__form"

// markPart is in the name of the program of a variant that is attached to the entries of functions
// with shared return instructions. It notes their calls, so that returns can be attributed to them.
const markPart = "__mark"

func isMark(program string) bool { return strings.Contains(program, markPart) }

// needsForm reports whether programs for returns are attached to user functions.
func needsForm(spec *ebpf.ProgramSpec) bool { return isReturn(spec) && isUser(spec) }

// withForm returns the program in a form. A program that does not call return_form() is returned
// unchanged.
func withForm(spec *ebpf.ProgramSpec, f form) *ebpf.ProgramSpec {
	if f == afterReturn {
		return spec
	}
	body := asm.Instructions{asm.LoadImm(asm.R0, int64(f), asm.DWord), asm.Return()}
	changed, err := replaceFunction(spec.Instructions, formFunction, body)
	if err != nil {
		return spec
	}
	spec = spec.Copy()
	spec.Instructions = changed
	return spec
}

// formName returns the name under which a program in a form is stored.
func formName(name string, f form) string {
	if f == afterReturn {
		return name
	}
	return fmt.Sprintf("%s%s%d", name, formSeparator, f)
}

// exits are the attach points for the returns of a function: offsets in the file.
type exits struct {
	own, shared []uint64
	uretprobe   bool  // a uretprobe at the function's entry is used instead
	err         error // why there are no attach points
	unwinds     bool  // a uretprobe could break the program; only set if shared is not empty
}

// in returns the attach points in a form.
func (e *exits) in(f form, entry uint64) []uint64 {
	switch {
	case f == atReturn:
		return e.own
	case f == atSharedReturn:
		return e.shared
	case e.uretprobe:
		return []uint64{entry}
	}
	return nil
}

// returnKey identifies a function.
type returnKey struct {
	file   binary.ID
	offset uint64
}

// exitsAt returns the result of findReturns for a function, or nil.
func (o *Objects) exitsAt(f *binary.File, offset uint64) *exits {
	o.returnsMu.Lock()
	defer o.returnsMu.Unlock()
	return o.returns[returnKey{f.ID, offset}]
}

// findReturns determines how programs are attached to the returns of the functions at these
// offsets.
func (o *Objects) findReturns(f *binary.File, offsets []uint64) {
	offsets = slices.DeleteFunc(slices.Clone(offsets), func(offset uint64) bool { return o.exitsAt(f, offset) != nil })
	if len(offsets) == 0 {
		return
	}
	o.returnsMu.Lock()
	defer o.returnsMu.Unlock()
	all, _ := f.Functions() // without them, only functions in the unwind table are decoded
	err := f.Parse(func(e *elf.File) error {
		text, err := code.New(e)
		if err != nil {
			return err
		}
		text.SetFunctions(functionRanges(e, all))
		for _, offset := range offsets {
			o.returns[returnKey{f.ID, offset}] = o.exitsOf(e, text, offset)
		}
		return nil
	})
	for _, offset := range offsets {
		if key := (returnKey{f.ID, offset}); o.returns[key] == nil {
			o.returns[key] = o.uretprobeExits(err, true)
		}
	}
}

// functionRanges returns the addresses of functions.
func functionRanges(e *elf.File, all []binary.Function) (ranges []code.Range) {
	for i := range all {
		if start, ok := binary.Address(e, all[i].Offset); ok {
			ranges = append(ranges, code.Range{Start: start, End: start + all[i].Size})
		}
	}
	return ranges
}

func (o *Objects) exitsOf(e *elf.File, text *code.Text, offset uint64) *exits {
	start, ok := binary.Address(e, offset)
	if !ok {
		return o.uretprobeExits(code.ErrHidden, true)
	}
	all, err := text.Returns(start)
	if errors.Is(err, code.ErrPart) {
		return &exits{err: err}
	}
	if err != nil {
		return o.uretprobeExits(err, text.Unwinds(start))
	}
	found := &exits{}
	for _, exit := range all {
		at, ok := binary.Offset(e, exit.Address)
		switch {
		case !ok:
			return o.uretprobeExits(code.ErrHidden, true)
		case exit.Shared:
			found.shared = append(found.shared, at)
		default:
			found.own = append(found.own, at)
		}
	}
	if len(found.shared) > 0 {
		found.unwinds = text.Unwinds(start)
	}
	return found
}

var errShared = errors.New("other functions share its return instructions")

// withoutShared returns the attach points for a program that does not match returns with entries,
// and therefore cannot use shared return instructions.
func (o *Objects) withoutShared(e *exits) *exits {
	if len(e.shared) == 0 {
		return e
	}
	return o.uretprobeExits(errShared, e.unwinds)
}

// uretprobeExits returns the result for functions that need a uretprobe because of err. unwinds is
// true if the uretprobe could break the program.
func (o *Objects) uretprobeExits(err error, unwinds bool) *exits {
	if !unwinds || o.options.Uretprobes {
		return &exits{uretprobe: true}
	}
	return &exits{err: err}
}

// returnsOf returns the result of findReturns, or an error if the returns cannot be observed. name
// is the function's name in messages.
func (o *Objects) returnsOf(f *binary.File, offset uint64, name string) (*exits, error) {
	found := o.exitsAt(f, offset)
	switch {
	case found == nil:
		return nil, nil
	case found.err != nil:
		return nil, unsafeReturn(f, name, found)
	case found.uretprobe && !o.options.Uretprobes && usesReturnAddress(name):
		return nil, fmt.Errorf("%w: %s of %s: %w; a uretprobe changes the return address, which the function uses (--uretprobes uses it nevertheless)",
			ErrUnsafeReturn, name, f.Path, code.ErrHidden)
	}
	return found, nil
}

// returnAddressUsers are functions of C libraries that store their return address for later, or
// search the file that it belongs to.
var returnAddressUsers = []string{
	"setjmp", "_setjmp", "__setjmp", "sigsetjmp", "__sigsetjmp", "getcontext", "swapcontext", "vfork",
	"dlsym", "dlvsym", "dlopen", "dlmopen", "dlinfo",
}

func usesReturnAddress(name string) bool {
	name, _, _ = strings.Cut(name, "@")
	return slices.Contains(returnAddressUsers, name)
}

// unsafeReturn returns an ErrUnsafeReturn with its reason and the remedy.
func unsafeReturn(f *binary.File, name string, found *exits) error {
	if errors.Is(found.err, code.ErrPart) {
		return fmt.Errorf("%w: %s of %s: %w", ErrUnsafeReturn, name, f.Path, found.err)
	}
	return fmt.Errorf("%w: %s of %s: %w; a uretprobe aborts the program when an exception or the cancellation of a thread leaves the function (--uretprobes uses it nevertheless)",
		ErrUnsafeReturn, name, f.Path, found.err)
}

// splitUnsafe separates targets that can be observed safely from those whose program would break.
func (o *Objects) splitUnsafe(h Hook, targets []targetWithID) (safe []targetWithID, unsafe []targetError) {
	programs := o.userPrograms(h)
	if slices.ContainsFunc(programs, func(name string) bool { return needsForm(o.spec.Programs[name]) }) {
		for _, part := range byFile(targets) {
			var offsets []uint64
			for _, t := range part {
				offsets = append(offsets, t.Offset)
			}
			o.findReturns(part[0].File, offsets)
		}
	}
	for _, t := range targets {
		if err := o.checkTarget(programs, t); err != nil {
			unsafe = append(unsafe, targetError{t, err})
			continue
		}
		safe = append(safe, t)
	}
	return safe, unsafe
}

// userPrograms lists the programs of a hook that are attached to user functions.
func (o *Objects) userPrograms(h Hook) (names []string) {
	for _, v := range h.Variants {
		for _, name := range v.Programs {
			if isUser(o.spec.Programs[name]) {
				names = append(names, name)
			}
		}
	}
	return names
}

// checkTarget returns an error if attaching the programs to the target could break its program.
//
// Returns ErrUnsafeReturn and ErrUnsafeEntry.
func (o *Objects) checkTarget(programs []string, t targetWithID) error {
	if t.File == nil {
		return nil
	}
	if _, err := o.returnsOf(t.File, t.Offset, t.Name); err != nil {
		return err
	}
	if slices.ContainsFunc(programs, func(name string) bool { return o.probesEntry(name, t) }) {
		return checkEntry(t.File, t.Offset, t.Name)
	}
	return nil
}

// probesEntry reports whether a program is attached to the first instruction of a function.
func (o *Objects) probesEntry(name string, t targetWithID) bool {
	found := o.exitsAt(t.File, t.Offset)
	switch {
	case isMark(name):
		return found != nil && len(found.shared) > 0
	case needsForm(o.spec.Programs[name]):
		return found == nil || found.uretprobe
	}
	return true
}

// ErrUnsafeEntry is returned for a function whose entry cannot be probed because the kernel would
// skip its first instruction: see [code.IsMisread].
var ErrUnsafeEntry = errors.New("entry cannot be probed: this kernel would skip the first instruction")

// checkEntry returns ErrUnsafeEntry if the instruction at an offset in a file must not be probed.
func checkEntry(f *binary.File, offset uint64, name string) error {
	if runtime.GOARCH != "amd64" {
		return nil
	}
	text, err := f.ReadCode(offset)
	if err != nil {
		return fmt.Errorf("check entry of %s: %w", name, err)
	}
	if code.IsMisread(text) {
		return fmt.Errorf("%s of %s: %w", name, f.Path, ErrUnsafeEntry)
	}
	return nil
}

// placement is a form of a program with the targets that it is attached to.
type placement struct {
	form    form
	targets []targetWithID
}

// placements returns the forms in which a program is attached to these targets.
func (o *Objects) placements(name string, targets []targetWithID) []placement {
	if !isMark(name) && !needsForm(o.spec.Programs[name]) {
		return []placement{{afterReturn, targets}}
	}
	var out []placement
	for f := afterReturn; f <= atSharedReturn; f++ {
		p := placement{form: f}
		for _, t := range targets {
			t.offsets = o.exitsAt(t.File, t.Offset).in(f, t.Offset)
			if len(t.offsets) > 0 {
				p.targets = append(p.targets, t)
			}
		}
		if len(p.targets) > 0 {
			out = append(out, p)
		}
	}
	if !isMark(name) {
		return out
	}
	for _, p := range out {
		if p.form == atSharedReturn {
			return []placement{{afterReturn, atEntry(p.targets)}}
		}
	}
	return nil
}

func atEntry(targets []targetWithID) []targetWithID {
	out := slices.Clone(targets)
	for i := range out {
		out[i].offsets = nil
	}
	return out
}

// clearReturns removes all results of findReturns.
func (o *Objects) clearReturns() {
	o.returnsMu.Lock()
	defer o.returnsMu.Unlock()
	clear(o.returns)
}

// HasReturns reports whether programs of an object are attached to the returns of user functions.
func HasReturns(spec *ebpf.CollectionSpec) bool {
	for _, prog := range spec.Programs {
		if needsForm(prog) {
			return true
		}
	}
	return false
}

// returnsIn describes how the programs of a variant are attached to the returns of user functions.
// It returns "" if none are.
func (o *Objects) returnsIn(v Variant) string {
	if !slices.ContainsFunc(v.Programs, func(name string) bool { return needsForm(o.spec.Programs[name]) }) {
		return ""
	}
	o.returnsMu.Lock()
	defer o.returnsMu.Unlock()
	var functions, instructions, uretprobes, unsafe int
	for _, e := range o.returns {
		switch {
		case e.err != nil:
			unsafe++
		case e.uretprobe:
			uretprobes++
		default:
			functions++
			instructions += len(e.own) + len(e.shared)
		}
	}
	var all []string
	if functions > 0 {
		all = append(all, fmt.Sprintf("returns of %s by uprobes at %s", count(functions, "function"), count(instructions, "return instruction")))
	}
	if uretprobes > 0 {
		all = append(all, fmt.Sprintf("returns of %s by uretprobes", count(uretprobes, "function")))
	}
	if unsafe > 0 {
		all = append(all, fmt.Sprintf("%s not observed", count(unsafe, "function")))
	}
	return strings.Join(all, ", ")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
