package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// archive is an initrd in the cpio format "newc", which is specified in the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst.
type archive struct {
	buf  bytes.Buffer
	ino  int
	dirs map[string]bool
}

const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
)

func newArchive() *archive { return &archive{dirs: map[string]bool{".": true, "/": true}} }

// add adds a file and its parent directories.
func (a *archive) add(name string, perm fs.FileMode, data []byte) {
	a.mkdir(path.Dir(name))
	a.entry(name, cpioFile|uint32(perm.Perm()), data)
}

func (a *archive) mkdir(name string) {
	if a.dirs[name] {
		return
	}
	a.mkdir(path.Dir(name))
	a.dirs[name] = true
	a.entry(name, cpioDir|0o755, nil)
}

func (a *archive) entry(name string, mode uint32, data []byte) {
	a.ino++
	fmt.Fprintf(&a.buf, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	a.buf.Write(data)
	a.pad()
}

// pad aligns the end of the archive to four bytes.
func (a *archive) pad() { a.buf.Write(make([]byte, -a.buf.Len()&3)) }

// addFile adds a file of this machine.
func (a *archive) addFile(name, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	a.add(name, 0o755, b)
	return nil
}

// addTree adds the files below a directory of this machine, if the directory exists.
func (a *archive) addTree(name, from string) error {
	if _, err := os.Stat(from); os.IsNotExist(err) {
		return nil
	}
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		below, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		return a.addFile(path.Join(name, below), p)
	})
}

// write terminates the archive and writes it to a file.
func (a *archive) write(to string) error {
	a.entry("TRAILER!!!", 0, nil)
	return os.WriteFile(to, a.buf.Bytes(), 0o644)
}
