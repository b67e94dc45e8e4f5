package probe

import (
	"cmp"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/limit"
)

// ErrNoAttachPoint is returned for a file of the command line that contains no attach point of the
// programs.
var ErrNoAttachPoint = errors.New("has no attach point")

// user attaches programs in files: in those that processes have mapped, and in others when they are
// mapped.
type user struct {
	objects *Objects
	specs   map[usdtSpec]uint32
	cookies func() bool // reports whether the kernel has attach cookies

	mu    sync.Mutex // the goroutine of follow attaches in new files
	names map[string]*files
	// owners has the threads that programs are attached for, by process.
	owners map[uint32]int
	watch  *binary.Watch
	done   chan struct{}
	stop   sync.Once
}

// files are the files of a name (Options.Files), and what is attached in them.
type files struct {
	want       binary.Files
	functions  []string // that programs are attached to
	seen       map[binary.ID]bool
	unreadable map[string]bool // paths of files that could not be opened
	initial    []*binary.File  // files that were mapped at the start, until programs are attached
	programs   []string        // that are attached in each file
	paths      []string        // of files that programs are attached in
	missed     []string        // some paths of files that could not be opened before their processes ended
	observed   observed
}

func newUser(o *Objects) *user {
	u := &user{objects: o, specs: map[usdtSpec]uint32{}, cookies: haveCookies, names: map[string]*files{}, owners: map[uint32]int{}}
	for _, name := range FileNames(o.spec) {
		want := o.options.Files[name]
		u.names[name] = &files{want: want, seen: map[binary.ID]bool{}, unreadable: map[string]bool{}, observed: newObserved(&want)}
	}
	for _, prog := range o.spec.Programs {
		if p, ok := parseUserSection(prog.SectionName); ok {
			fs := u.names[p.files]
			for _, function := range p.functions {
				fs.functions = append(fs.functions, fs.want.Symbol(function))
			}
		}
	}
	return u
}

// find opens the files that are mapped now. It subscribes to new mappings first, so that no file is
// missed in between.
func (u *user) find() error {
	if len(u.names) == 0 || u.watch != nil {
		return nil
	}
	for _, fs := range u.names {
		for _, path := range slices.Concat(fs.want.Paths, fs.want.Extra) {
			opened, err := fs.want.OpenPath(path)
			if err != nil {
				return err
			}
			for _, f := range opened {
				fs.addNew(f)
			}
		}
		u.openInstalled(fs)
	}
	w, err := binary.NewWatch()
	if err != nil {
		return Classify(err)
	}
	u.watch = w
	u.objects.Uninspected, err = binary.Scan(nil, func(m *binary.Mapped) {
		for _, fs := range u.names {
			fs.observed.note(m)
			fs.add(u.open(fs, m))
		}
	})
	return u.exceeded(err)
}

// openInstalled opens the files that are selected because they are installed.
func (u *user) openInstalled(fs *files) {
	for _, path := range fs.want.InstalledPaths() {
		f, err := binary.Open(path)
		switch {
		case errors.Is(err, iofs.ErrNotExist): // a dangling link
		case err != nil:
			u.objects.notify(fmt.Errorf("%s is not traced before a process maps it: %w", path, err))
		default:
			fs.addNew(f)
		}
	}
}

// exceeded reports processes with too many mappings, and returns any other error of a scan.
func (u *user) exceeded(err error) error {
	if errors.Is(err, limit.ErrExceeded) {
		u.objects.notify(fmt.Errorf("some mapped files are not traced: %w", err))
		return nil
	}
	return err
}

// open returns the file of a mapping if it is wanted and new, otherwise nil. It ignores files of
// processes that have exited.
func (u *user) open(fs *files, m *binary.Mapped) *binary.File {
	byName := fs.want.Wants(m)
	if !byName && !fs.want.WantsProgram(m) {
		return nil
	}
	f, err := m.Open()
	if byName && errors.Is(err, iofs.ErrPermission) && !fs.unreadable[m.Path] {
		fs.unreadable[m.Path] = true
		u.objects.notify(fmt.Errorf("%s of process %d is not traced: %w", m.Path, m.PID, err))
	}
	if byName && errors.Is(err, iofs.ErrNotExist) {
		u.addMissed(fs, m.Path)
	}
	if err != nil {
		return nil
	}
	if fs.seen[f.ID] || !byName && !u.exports(fs, f, m.PID) {
		fs.seen[f.ID] = true
		f.Close()
		return nil
	}
	return f
}

// exports reports whether a program that could be linked statically with the library exports one of
// the functions.
func (u *user) exports(fs *files, f *binary.File, pid uint32) bool {
	ok, err := f.Exports(fs.functions...)
	if err != nil {
		u.objects.notify(fmt.Errorf("program of process %d is not traced: %w", pid, err))
	}
	return ok
}

// addNew adds a file, or closes it if it has been added before.
func (fs *files) addNew(f *binary.File) {
	if fs.seen[f.ID] {
		f.Close()
		return
	}
	fs.add(f)
}

func (fs *files) add(f *binary.File) {
	if f != nil {
		fs.seen[f.ID] = true
		fs.initial = append(fs.initial, f)
	}
}

// attach attaches a program in all files that are mapped now. It returns an error if the program
// could not be attached in any file that contains its attach point.
func (u *user) attach(name string, p userSection) ([]link.Link, error) {
	fs := u.names[p.files]
	if _, err := u.program(name, 0); err != nil {
		return nil, err
	}
	var links []link.Link
	var failed []error
	for _, f := range fs.initial {
		more, err := u.attachIn(name, p, f)
		if err != nil {
			failed = append(failed, fmt.Errorf("attach %s/%s in %s: %w", p.kind, p.files, f.Path, err))
		}
		if len(more) > 0 {
			fs.addAttached(f)
		}
		links = append(links, more...)
	}
	if len(failed) > 0 && len(links) == 0 {
		return nil, failed[0]
	}
	u.objects.notify(failed...)
	fs.programs = append(fs.programs, name)
	return links, nil
}

// addAttached records that a program is attached in the file.
func (fs *files) addAttached(f *binary.File) {
	fs.paths = appendNew(fs.paths, f.Path)
	fs.observed.attached[f.ID] = true
}

func appendNew(all []string, text string) []string {
	if slices.Contains(all, text) {
		return all
	}
	return append(all, text)
}

// attachIn attaches a program at all its attach points in one file. There are none if the file does
// not contain them, or is built for another machine.
func (u *user) attachIn(name string, p userSection, f *binary.File) ([]link.Link, error) {
	sites, err := u.sites(p, f)
	if err != nil || len(sites) == 0 {
		if errors.Is(err, binary.ErrForeign) {
			err = nil
		}
		return nil, err
	}
	exe, err := link.OpenExecutable(f.Name())
	if err != nil {
		return nil, err
	}
	attach := u.attachEach
	if u.objects.spec.Programs[name].AttachType == ebpf.AttachTraceUprobeMulti {
		attach = u.attachMulti
	}
	var links []link.Link
	for form := afterReturn; form <= atSharedReturn; form++ {
		part := slices.DeleteFunc(slices.Clone(sites), func(s site) bool { return s.form != form })
		if len(part) == 0 {
			continue
		}
		more, err := attach(formName(name, form), p, exe, part)
		if err != nil {
			return nil, errors.Join(err, closeAll(links))
		}
		links = append(links, more...)
	}
	return links, nil
}

// startFollowing is called when programs are attached in all initial files. It checks the result,
// and begins to attach in files that are mapped later.
func (u *user) startFollowing() error {
	var waiting []string
	var gone error
	found := false
	for _, name := range slices.Sorted(maps.Keys(u.names)) {
		fs := u.names[name]
		fs.observed.begin(fs)
		for _, f := range fs.initial {
			u.reportMissing(fs, f)
		}
		fs.close()
		if len(fs.programs) == 0 {
			continue
		}
		for _, path := range slices.Concat(fs.want.Paths, fs.want.Extra) {
			if !slices.Contains(fs.paths, path) {
				return fmt.Errorf("%s %w: %s", path, ErrNoAttachPoint, u.notFound(fs))
			}
		}
		if len(fs.paths) > 0 {
			found = true
		} else if len(fs.want.Names) > 0 {
			waiting = append(waiting, u.unattachedReason(fs))
			gone = cmp.Or(gone, exited(&fs.want))
		}
	}
	if !found && gone != nil {
		return gone
	}
	if !found && len(waiting) > 0 {
		u.objects.notify(fmt.Errorf("waiting for a file to attach to: %s", strings.Join(waiting, "; ")))
	}
	if u.watch != nil {
		u.done = make(chan struct{})
		go u.objects.Guarded(u.follow)()
	}
	return nil
}

// notFound states that a file has none of the functions or USDT probes of the programs.
func (u *user) notFound(fs *files) string {
	all := u.wanted(fs)
	noun := "function"
	if u.isUSDT(fs) {
		noun = "USDT probe"
	}
	if len(all) == 1 {
		return noun + " " + all[0] + " not found"
	}
	return fmt.Sprintf("none of the %ss %s found", noun, shortList(all))
}

// reportMissing reports the functions that a file lacks, of which programs trace others, if it is
// expected to have all of them.
func (u *user) reportMissing(fs *files, f *binary.File) {
	if !fs.want.Whole || !fs.observed.attached[f.ID] {
		return
	}
	all, err := f.Functions()
	if err != nil {
		return // reported by attachIn
	}
	missing := u.wanted(fs)
	for _, fn := range all {
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == fn.Name })
	}
	if len(missing) > 0 {
		u.objects.notify(fmt.Errorf("%s has no symbols for these functions, which are not traced: %s", f.Path, strings.Join(missing, ", ")))
	}
}

// isUSDT reports whether all programs are attached to USDT probes.
func (u *user) isUSDT(fs *files) bool {
	return !slices.ContainsFunc(fs.programs, func(name string) bool {
		p, _ := parseUserSection(u.objects.spec.Programs[name].SectionName)
		return p.probe == ""
	})
}

// wanted lists the functions or probes that the programs are attached to.
func (u *user) wanted(fs *files) []string {
	var all []string
	for _, name := range fs.programs {
		p, _ := parseUserSection(u.objects.spec.Programs[name].SectionName)
		for _, what := range append(p.functions, p.probe) {
			if p.probe == "" && what != "" {
				what = fs.want.Symbol(what)
			}
			if what != "" && !slices.Contains(all, what) {
				all = append(all, what)
			}
		}
	}
	return all
}

func (fs *files) close() {
	closeAll(fs.initial)
	fs.initial = nil
}

// follow attaches in files that are mapped later.
func (u *user) follow() {
	defer close(u.done)
	missed := func() {
		_, err := binary.Scan(nil, u.mapped)
		_ = u.exceeded(err) // the next scan can succeed
	}
	if err := u.watch.Run(u.mapped, missed); err != nil {
		u.objects.notify(fmt.Errorf("follow new files: %w", err))
	}
}

func (u *user) mapped(m *binary.Mapped) {
	for _, fs := range u.names {
		if f := u.open(fs, m); f != nil {
			fs.seen[f.ID] = true
			if u.attachAll(fs, f) && (fs.want.Alone || fs.want.Has != nil) {
				u.objects.notify(fmt.Errorf("attached in %s: earlier calls by process %d were not observed", f.Path, m.PID))
			}
			f.Close()
		}
		u.observe(fs, m)
	}
}

func (u *user) observe(fs *files, m *binary.Mapped) {
	u.mu.Lock()
	defer u.mu.Unlock()
	fs.observed.mapped(m)
}

// attachAll attaches all programs in a file that was mapped later. It returns false if the file
// contains none of their attach points.
func (u *user) attachAll(fs *files, f *binary.File) bool {
	var all []link.Link
	for _, name := range fs.programs {
		p, _ := parseUserSection(u.objects.spec.Programs[name].SectionName)
		links, err := u.attachIn(name, p, f)
		if err != nil {
			u.objects.notify(fmt.Errorf("attach %s/%s in %s: %w", p.kind, p.files, f.Path, err))
		}
		all = append(all, links...)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(all) == 0 {
		fs.observed.addUnsuitable(f)
		return false
	}
	u.objects.keep(all)
	fs.addAttached(f)
	u.reportMissing(fs, f)
	return true
}

// Files returns the paths of the files of a name that programs are attached in. A path is relative
// to the root directory of the process that mapped the file.
func (o *Objects) Files(name string) []string {
	o.user.mu.Lock()
	defer o.user.mu.Unlock()
	if fs := o.user.names[name]; fs != nil {
		return slices.Clone(fs.paths)
	}
	return nil
}

// where lists the first few files that a variant is attached in, as " in FILE, FILE", or returns
// "".
func (o *Objects) where(v Variant) string {
	var paths []string
	for _, section := range v.Where {
		p, _ := parseUserSection(section)
		paths = append(paths, o.Files(p.files)...)
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	if len(paths) == 0 {
		return ""
	}
	return " in " + shortList(paths)
}

// shortList joins the first three elements, with the number of others.
func shortList(all []string) string {
	const most = 3
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// removePrograms removes the programs of a variant that failed to attach.
func (u *user) removePrograms(programs []string) {
	for _, fs := range u.names {
		fs.programs = slices.DeleteFunc(fs.programs, func(name string) bool { return slices.Contains(programs, name) })
	}
}

// stopFollowing stops attaching in new files.
func (u *user) stopFollowing() (err error) {
	u.stop.Do(func() {
		u.notifyEnded()
		for _, fs := range u.names {
			fs.close()
		}
		if u.watch == nil {
			return
		}
		if u.done != nil {
			// Unobserved needs all mappings until now.
			err = errors.Join(u.watch.Sync(), u.watch.Stop())
			<-u.done
		}
		err = errors.Join(err, u.watch.Close())
	})
	return err
}
