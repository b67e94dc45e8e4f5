package stack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/binary"
)

// codeOf lists the executable mappings of a process as the kernel's programs would.
func codeOf(t testing.TB, pid int) []Code {
	t.Helper()
	maps, err := binary.Executable(uint32(pid))
	if err != nil {
		t.Fatal(err)
	}
	var code []Code
	for _, m := range maps {
		c := Code{Start: m.Start, End: m.End, Offset: m.Offset, File: binary.KernelID{Inode: m.Inode, Device: m.Device}}
		var st unix.Stat_t
		switch {
		case m.Path == "[vdso]":
			c.File.Kind = binary.KindVDSO
		case m.Inode == 0:
			c.File.Kind = binary.KindAnonymous
		case unix.Stat(fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.Start, m.End), &st) != nil:
			t.Skip("mapped files cannot be opened: no CAP_CHECKPOINT_RESTORE")
		default:
			c.File.Changed = uint64(st.Ctim.Nano())
		}
		code = append(code, c)
	}
	return code
}

// ended is the number of no process.
const ended = 1<<22 + 7

// Addresses are named by the files of their mappings: the process itself is not needed.
func TestAppendCode(t *testing.T) {
	ps, code := newProcesses(t), codeOf(t, os.Getpid())
	for i := range code {
		if f := ps.Find(os.Getpid(), &code[i]); f == nil && code[i].File.Kind != binary.KindAnonymous {
			t.Errorf("%+v is not found", code[i])
		}
	}
	pc := uint64(funcAddress())
	frames := ps.AppendCode(nil, ended, []uint64{pc, pc}, code, 0)
	if len(frames) != 2 || !strings.HasSuffix(frames[0].Name, ".funcAddress") || frames[0].Name != frames[1].Name || frames[0].BuildID != frames[1].BuildID {
		t.Fatalf("frames are %+v", frames)
	}
	if exe, _ := os.Executable(); frames[0].Module != exe {
		t.Errorf("module is %s, want %s", frames[0].Module, exe)
	}
	if f := ps.AppendCode(nil, ended, []uint64{pc}, nil, 0)[0]; f.Name != "" || f.Reason != Exited {
		t.Errorf("without mappings it is %+v", f)
	}
	for i := range code {
		if code[i].File.Kind == binary.KindVDSO {
			if f := ps.AppendCode(nil, ended, []uint64{code[i].Start + 0x800}, code, 0)[0]; f.Module != "[vdso]" {
				t.Errorf("vDSO is %+v", f)
			}
		}
	}
}

// A process that ended before its stack came is found by what was heard of its mappings, but
// only if the path leads to the same file still.
func TestFindEnded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ps := newProcesses(t)
	h, err := handleAt(file)
	if err != nil {
		t.Fatal(err)
	}
	id := binary.KernelID{Inode: h.id.inode, Changed: h.changed}
	h.Close()
	c := Code{Start: 0x1000, End: 0x2000, File: id}
	if f := ps.Find(ended, &c); f != nil {
		t.Errorf("%+v was never heard of", f)
	}
	ps.Heard(ended, Mapping{Start: 0x1000, End: 0x2000, Inode: id.Inode, Path: file})
	other := c
	other.File.Inode, other.File.Changed = id.Inode+1, id.Changed+1
	if f := ps.Find(ended, &other); f != nil {
		t.Errorf("%+v is another file", f)
	}
	if f := ps.Find(ended, &c); f == nil || f.Path != file {
		t.Errorf("%+v was heard of", f)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if f := ps.Find(ended, &c); f == nil {
		t.Error("it is not held")
	}
}

// Files are held up to a number; those that were not used for the longest time go first.
func TestFilesBounds(t *testing.T) {
	var fs files
	dir := t.TempDir()
	var first *File
	for i := range uint64(maxFiles + 10) {
		if _, err := handleAt(dir); err == nil {
			t.Fatal("a directory was accepted as a file")
		}
		h, err := handleAt("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		f := fs.add(binary.KernelID{Inode: i}, h, "")
		if i == 0 {
			first = f
		} else if i == 1000 {
			fs.find(binary.KernelID{})
		}
	}
	if len(fs.byID) != maxFiles || fs.find(binary.KernelID{}) != first || fs.find(binary.KernelID{Inode: 2}) != nil {
		t.Errorf("%d files are held", len(fs.byID))
	}
	if f, err := first.Open(); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	fs.close()
	if _, err := first.Open(); err == nil {
		t.Error("it is open still")
	}
}

// A process that is met has its root held, and its mappings read only if a stack leads through
// code of no file.
func TestMeet(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		cmd.Wait()
	}()
	ps, pid := newProcesses(t), cmd.Process.Pid
	file, anonymous := []Code{{}}, []Code{{}, {File: binary.KernelID{Kind: binary.KindAnonymous}}}
	ps.Meet(pid, 1, file)
	p := ps.pids[pid]
	if p.root == nil || p.taken != nil {
		t.Errorf("root is %v, mappings %v", p.root, p.taken)
	}
	if ps.Meet(pid, 1, anonymous); p.taken == nil {
		t.Error("mappings are not read")
	}
	taken := p.taken
	if ps.Meet(pid, 1, anonymous); p.taken != taken {
		t.Error("mappings are read for each stack")
	}
	if ps.Meet(pid, 2, file); p.taken == taken {
		t.Error("mappings are those of another address space")
	}
}
