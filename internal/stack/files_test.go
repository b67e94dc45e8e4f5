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

// codeOf returns the executable mappings of a process as BPF programs would send them.
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
			t.Skip("no CAP_CHECKPOINT_RESTORE: cannot open /proc/PID/map_files")
		default:
			c.File.Changed = uint64(st.Ctim.Nano())
		}
		code = append(code, c)
	}
	return code
}

// noPID is higher than any PID.
const noPID = 1<<22 + 7

// TestAppendCode symbolizes addresses with their mappings only, without the process.
func TestAppendCode(t *testing.T) {
	ps, code := newProcesses(t), codeOf(t, os.Getpid())
	for i := range code {
		if f := ps.Find(os.Getpid(), &code[i]); f == nil && code[i].File.Kind != binary.KindAnonymous {
			t.Errorf("file of mapping %+v not found", code[i])
		}
	}
	pc := uint64(funcAddress())
	frames := ps.AppendCode(nil, noPID, []uint64{pc, pc}, code, 0)
	if len(frames) != 2 || !strings.HasSuffix(frames[0].Name, ".funcAddress") || frames[0].Name != frames[1].Name || frames[0].BuildID != frames[1].BuildID {
		t.Fatalf("got frames %+v", frames)
	}
	if exe, _ := os.Executable(); frames[0].Module != exe {
		t.Errorf("module is %s, want %s", frames[0].Module, exe)
	}
	if f := ps.AppendCode(nil, noPID, []uint64{pc}, nil, 0)[0]; f.Name != "" || f.Reason != Exited {
		t.Errorf("without mappings: got %+v", f)
	}
	for i := range code {
		if code[i].File.Kind == binary.KindVDSO {
			if f := ps.AppendCode(nil, noPID, []uint64{code[i].Start + 0x800}, code, 0)[0]; f.Module != "[vdso]" {
				t.Errorf("vDSO: got %+v", f)
			}
		}
	}
}

// TestFindExited checks that the files of a process that exited before its stack was read are found
// by their mmap records, if the path still refers to the same file.
func TestFindExited(t *testing.T) {
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
	if f := ps.Find(noPID, &c); f != nil {
		t.Errorf("found %+v without an mmap record", f)
	}
	ps.RecordMmap(noPID, Mapping{Start: 0x1000, End: 0x2000, Inode: id.Inode, Path: file})
	other := c
	other.File.Inode, other.File.Changed = id.Inode+1, id.Changed+1
	if f := ps.Find(noPID, &other); f != nil {
		t.Errorf("found another file: %+v", f)
	}
	if f := ps.Find(noPID, &c); f == nil || f.Path != file {
		t.Errorf("found %+v, want %s", f, file)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if f := ps.Find(noPID, &c); f == nil {
		t.Error("the file was not kept open")
	}
}

// TestFilesBounds checks that the least recently used files are closed if too many are open.
func TestFilesBounds(t *testing.T) {
	fs := files{max: maxFiles}
	dir := t.TempDir()
	var first *File
	for i := range uint64(maxFiles + 10) {
		if _, err := handleAt(dir); err == nil {
			t.Fatal("accepted a directory as a file")
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
		t.Errorf("%d files are open, want %d", len(fs.byID), maxFiles)
	}
	if f, err := first.Open(); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	fs.close()
	if _, err := first.Open(); err == nil {
		t.Error("the file is still open after close")
	}
}

// TestPrepare checks that Prepare opens the root of a process, and reads its mappings only if a
// stack contains code outside files.
func TestPrepare(t *testing.T) {
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
	ps.Prepare(pid, 1, file)
	p := ps.pids[pid]
	if p.root == nil || p.snapshot != nil {
		t.Errorf("got root %v, snapshot %v; want only a root", p.root, p.snapshot)
	}
	if ps.Prepare(pid, 1, anonymous); p.snapshot == nil {
		t.Error("mappings were not read")
	}
	snapshot := p.snapshot
	if ps.Prepare(pid, 1, anonymous); p.snapshot != snapshot {
		t.Error("mappings were read again for the same address space")
	}
	if ps.Prepare(pid, 2, file); p.snapshot == snapshot {
		t.Error("mappings were not read for another address space")
	}
}
