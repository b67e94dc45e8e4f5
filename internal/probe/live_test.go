package probe

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to load BPF programs")
	}
}

// object is a spec for tests. The names of its programs and maps contain the PID of this process,
// so that they can be found among others on the machine.
type object struct{ *ebpf.CollectionSpec }

func newObject() object {
	u32 := &btf.Int{Name: "unsigned int", Size: 4}
	u64 := &btf.Int{Name: "unsigned long long", Size: 8}
	lost := &btf.Struct{Name: "lost", Size: 16, Members: []btf.Member{
		{Name: "buffer_full", Type: u64}, {Name: "map_full", Type: u64, Offset: 64},
	}}
	spec := object{&ebpf.CollectionSpec{
		Programs: map[string]*ebpf.ProgramSpec{},
		Maps: map[string]*ebpf.MapSpec{
			"lost": {Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: 1, Key: u32, Value: lost, Tags: []string{userSpace}},
			".bss": {Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Flags: 1 << 10, Contents: []ebpf.MapKV{{Key: uint32(0), Value: make([]byte, 8)}}},
			"rare": {Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1},
		},
		Variables: map[string]*ebpf.VariableSpec{"runs": {Name: "runs", SectionName: ".bss", Value: make([]byte, 8)}},
	}}
	for _, m := range spec.Maps {
		m.Name = tag()
	}
	return spec
}

func tag() string { return fmt.Sprintf("cst%d", os.Getpid()) }

// add adds a raw tracepoint program with these instructions, or one that counts its runs in
// map_full.
func (o object) add(name, tracepoint string, ins ...asm.Instruction) object {
	if len(ins) == 0 {
		ins = counting()
	}
	o.Programs[name] = &ebpf.ProgramSpec{
		Name: tag(), Type: ebpf.RawTracepoint, AttachTo: tracepoint, SectionName: "raw_tp/" + tracepoint,
		License: "GPL", Instructions: ins,
	}
	return o
}

func counting() asm.Instructions {
	return asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference("lost"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R1, asm.R0, 8, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}
}

// invalid returns a program that the verifier refuses.
func invalid() asm.Instructions {
	return asm.Instructions{asm.LoadMem(asm.R0, asm.R5, 0, asm.DWord), asm.Return()}
}

func (o object) load(t testing.TB, opts Options) *Objects {
	t.Helper()
	needRoot(t)
	kernel, err := NewKernel("")
	if err != nil {
		t.Fatal(err)
	}
	opts.Kernel = kernel
	objects, err := Load(o.CollectionSpec, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { objects.Close() })
	return objects
}

// results formats attempts as "KIND:REASON, KIND:REASON", each reason up to its first colon.
func results(tried []Attempt) string {
	var all []string
	for _, a := range tried {
		reason, _, _ := strings.Cut(Reason(a.Err), ":")
		all = append(all, a.Variant.Kind+":"+reason)
	}
	return strings.Join(all, ", ")
}

// countObjects counts the programs, maps and links of this process in the kernel.
func countObjects(t testing.TB) (programs, maps, links int) {
	t.Helper()
	mine := map[ebpf.ProgramID]bool{}
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // freed meanwhile
		}
		if info, err := p.Info(); err == nil && info.Name == tag() {
			mine[id] = true
		}
		p.Close()
	}
	for id, err := ebpf.MapGetNextID(0); err == nil; id, err = ebpf.MapGetNextID(id) {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue
		}
		if info, err := m.Info(); err == nil && info.Name == tag() {
			maps++
		}
		m.Close()
	}
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		if info, err := it.Link.Info(); err == nil && mine[info.Program] {
			links++
		}
	}
	return len(mine), maps, links
}

// waitFor waits until the kernel has exactly these numbers of programs, maps and links. The kernel
// frees them a while after they are closed, and memory-mapped maps when the garbage collector
// unmaps them.
func waitFor(t testing.TB, programs, maps, links int) {
	t.Helper()
	want := [3]int{programs, maps, links}
	var got [3]int
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		runtime.GC()
		if got[0], got[1], got[2] = countObjects(t); got == want {
			return
		}
	}
	t.Errorf("programs, maps and links: %d, want %d", got, want)
}

func TestAttachFirstVariantThatWorks(t *testing.T) {
	o := newObject().
		add("exit__fentry", "sys_exit", invalid()...).
		add("exit__btf", "no_such_tracepoint").
		add("exit__raw", "sys_exit").
		add("exit__tp", "sys_exit").
		load(t, Options{})
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	if got, want := results(o.Tried["exit"]), "fentry:refused by the verifier, btf:attach point does not exist, raw:works"; got != want {
		t.Errorf("tried %s, want %s", got, want)
	}
	if got := fmt.Sprint(o.AttachedHooks()); got != "[exit: raw_tp/sys_exit]" {
		t.Errorf("attached %s", got)
	}
	if stats, err := o.Stats(time.Second); err != nil || len(stats) != 1 || stats[0].Program != "exit__raw" {
		t.Errorf("statistics: %+v, %v, want those of exit__raw", stats, err)
	}
	waitFor(t, 1, 2, 1)
}

func TestVariantOfPartsIsAllOrNothing(t *testing.T) {
	o := newObject().
		add("io__btf__a", "sys_enter").
		add("io__btf__b", "sys_exit").
		add("io__btf__c", "no_such_tracepoint").
		add("io__raw__a", "sys_enter").
		add("io__raw__b", "sys_exit").
		load(t, Options{})
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	if got := results(o.Tried["io"]); got != "btf:attach point does not exist, raw:works" {
		t.Errorf("tried %s", got)
	}
	if got := fmt.Sprint(o.AttachedHooks()); got != "[io: raw_tp/sys_enter + raw_tp/sys_exit]" {
		t.Errorf("attached %s", got)
	}
	waitFor(t, 2, 2, 2)
	if err := o.Close(); err != nil { // while the programs are attached
		t.Error(err)
	}
	waitFor(t, 0, 0, 0)
	runtime.KeepAlive(o)
}

func TestNoVariantWorks(t *testing.T) {
	o := newObject().
		add("exit__btf", "no_such_tracepoint").
		add("exit__raw", "sys_exit", invalid()...).
		load(t, Options{})
	err := o.Attach()
	var hook *HookError
	if !errors.As(err, &hook) || !errors.Is(err, ErrUnsupported) || errors.Is(err, ErrNotPermitted) {
		t.Fatal(err)
	}
	want := "attach hook exit: raw_tp/no_such_tracepoint: attach point does not exist; raw_tp/sys_exit: refused by the verifier"
	if !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want prefix %q", err, want)
	}
	if o.Attached() || len(o.AttachedHooks()) != 0 {
		t.Errorf("attached: %v, hooks %v", o.Attached(), o.AttachedHooks())
	}
}

func TestOptionalAndExcludedHooks(t *testing.T) {
	o := newObject().
		add("may__btf", "no_such_tracepoint").
		add("not__btf", "sys_enter").
		add("must__raw", "sys_exit").
		add("must__tp", "sys_exit").
		load(t, Options{Optional: []string{"may"}, Without: []string{"not"}, Force: []string{"must=tp"}})
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	if got := results(o.Tried["must"]); got != "tp:works" {
		t.Errorf("forced: %s", got)
	}
	if got := results(o.Tried["may"]); got != "btf:attach point does not exist" {
		t.Errorf("optional: %s", got)
	}
	if tried := o.Tried["not"]; tried != nil {
		t.Errorf("excluded: %s, want no attempts", results(tried))
	}
}

func TestExplainDetaches(t *testing.T) {
	o := newObject().
		add("exit__fentry", "sys_exit", invalid()...).
		add("exit__raw", "sys_exit").
		add("exit__tp", "no_such_tracepoint").
		add("enter__raw", "sys_enter").
		load(t, Options{})
	tried, err := o.Explain()
	if err != nil {
		t.Fatal(err)
	}
	if got := results(tried["exit"]); got != "fentry:refused by the verifier, raw:works, tp:attach point does not exist" {
		t.Errorf("exit: %s", got)
	}
	if got := results(tried["enter"]); got != "raw:works" {
		t.Errorf("enter: %s", got)
	}
	if o.Attached() || len(o.Tried) != 0 {
		t.Errorf("attached: %v, tried %v", o.Attached(), o.Tried)
	}
	waitFor(t, 0, 2, 0)
}

func TestCountersAndSkippedRuns(t *testing.T) {
	o := newObject().add("exit__raw", "sys_exit").load(t, Options{})
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	const calls = 1000
	for range calls {
		syscall.Getppid()
	}
	if err := o.Detach(); err != nil {
		t.Fatal(err)
	}
	counts, err := o.Counts("lost").Read()
	if err != nil || counts["map_full"] < calls || counts["buffer_full"] != 0 || len(counts) != 2 {
		t.Errorf("%v, %v, want at least %d", counts, err, calls)
	}
	if counts, err := o.Counts("counters").Read(); err != nil || len(counts) != 0 {
		t.Errorf("counters of a missing map: %v, %v", counts, err)
	}
	if skipped, err := o.SkippedRuns(); err != nil || skipped != 0 {
		t.Errorf("skipped runs: %d, %v, want 0", skipped, err)
	}
}

// TestMapsAreCreatedWithPrograms checks that maps with the tag userSpace are created first, and
// others with the first program that uses them.
func TestMapsAreCreatedWithPrograms(t *testing.T) {
	uses := asm.Instructions{asm.LoadMapPtr(asm.R1, 0).WithReference("rare"), asm.Mov.Imm(asm.R0, 0), asm.Return()}
	spec := newObject().add("a__raw", "sys_enter").add("b__raw", "sys_exit", uses...)
	spec.Maps["shared"] = &ebpf.MapSpec{Name: tag(), Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Tags: []string{userSpace}}
	o := spec.load(t, Options{Without: []string{"b"}})
	names := func() string { return strings.Join(slices.Sorted(maps.Keys(o.Maps)), " ") }
	if err := o.Attach(); err != nil || names() != ".bss lost shared" {
		t.Errorf("maps %s, %v", names(), err)
	}
	first, err := o.Program("b__raw")
	if err != nil || names() != ".bss lost rare shared" {
		t.Errorf("maps %s, %v", names(), err)
	}
	if second, err := o.Program("b__raw"); err != nil || second != first {
		t.Errorf("the program was loaded twice: %v", err)
	}
	if _, err := o.Program("none"); err == nil {
		t.Error("loading a missing program: no error")
	}
}

func TestCloseFreesEverything(t *testing.T) {
	spec := newObject().add("a__raw", "sys_enter").add("b__btf", "no_such_tracepoint").add("b__raw", "sys_exit")
	o := spec.load(t, Options{})
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	if o.Variables["runs"] == nil {
		t.Error("variable runs is missing")
	}
	waitFor(t, 2, 2, 2)
	if err := o.Detach(); err != nil || o.Attached() {
		t.Errorf("attached: %v, %v", o.Attached(), err)
	}
	waitFor(t, 2, 2, 0)
	for range 2 {
		if err := o.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	waitFor(t, 0, 0, 0)
}

// TestDetachConcurrently checks that Detach can be called by two goroutines, as for a signal at the
// end of a run.
func TestDetachConcurrently(t *testing.T) {
	o := newObject().add("a__raw", "sys_enter").load(t, Options{})
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if err := o.Detach(); err != nil || o.Attached() {
				t.Errorf("attached: %v, %v", o.Attached(), err)
			}
		})
	}
	both.Wait()
}

func TestIterate(t *testing.T) {
	const rowValue = 0x636f7265
	o := newObject()
	o.Programs["tasks"] = &ebpf.ProgramSpec{
		Name: tag(), Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "task", SectionName: "iter/task", License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord), // meta
			asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord), // seq
			asm.StoreImm(asm.RFP, -8, 4, asm.Word),    // size of the row
			asm.StoreImm(asm.RFP, -4, rowValue, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -8),
			asm.Mov.Imm(asm.R3, 8),
			asm.FnSeqWrite.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		},
	}
	objects := o.load(t, Options{})
	if err := objects.Attach(); err != nil {
		t.Fatal(err)
	}
	records := 0
	err := objects.Iterate(Iterator{Program: "tasks"}, func(b []byte) error {
		if len(b) != 4 || b[0] != rowValue&0xff || b[3] != rowValue>>24 {
			t.Fatalf("row is %x", b)
		}
		records++
		return nil
	})
	if errors.Is(err, ErrUnsupported) && !hasIterator(t, "task") {
		t.Skip(err)
	}
	if err != nil || records < 2 {
		t.Errorf("%d records, %v", records, err)
	}
	stop := errors.New("stop")
	if err := objects.Iterate(Iterator{Program: "tasks"}, func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v, want %v", err, stop)
	}
	if err := objects.Iterate(Iterator{Program: "none"}, nil); err == nil {
		t.Error("running a missing iterator: no error")
	}
	waitFor(t, 1, 2, 1)
}

func TestLoadErrors(t *testing.T) {
	needRoot(t)
	kernel, err := NewKernel("")
	if err != nil {
		t.Fatal(err)
	}
	o := newObject()
	o.Maps["events"] = &ebpf.MapSpec{Name: tag(), Type: ebpf.RingBuf, MaxEntries: 3, Tags: []string{userSpace}}
	if objects, err := Load(o.CollectionSpec, Options{Kernel: kernel}); err == nil {
		objects.Close()
		t.Error("creating a ring buffer of 3 bytes: no error")
	}
	if objects, err := Load(newObject().CollectionSpec, Options{Kernel: kernel, Variables: map[string]any{"none": 1}}); err == nil {
		objects.Close()
		t.Error("setting a missing variable: no error")
	}
	waitFor(t, 0, 0, 0)
}

// asNobody is set in the child process that TestWithoutPermission runs as nobody.
const asNobody = "PROBE_TEST_AS_NOBODY"

func TestWithoutPermission(t *testing.T) {
	if os.Getenv(asNobody) != "" {
		kernel, err := NewKernel("")
		if err != nil {
			t.Fatal(err)
		}
		objects, err := Load(newObject().CollectionSpec, Options{Kernel: kernel})
		if err == nil {
			objects.Close()
		}
		if !errors.Is(err, ErrNotPermitted) {
			t.Errorf("%v, want %v", err, ErrNotPermitted)
		}
		return
	}
	needRoot(t)
	if b, err := os.ReadFile("/proc/sys/kernel/unprivileged_bpf_disabled"); err != nil || strings.TrimSpace(string(b)) == "0" {
		t.Skip("unprivileged processes may create maps: kernel.unprivileged_bpf_disabled is 0")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestWithoutPermission$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), asNobody+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// hasIterator reports whether the kernel's BTF has an iterator for this kind of object.
func hasIterator(t *testing.T, kind string) bool {
	t.Helper()
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var f *btf.Func
	return types.TypeByName("bpf_iter_"+kind, &f) == nil
}
