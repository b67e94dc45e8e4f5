package probe

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Iterator is a program that the kernel calls for each object of a kind.
type Iterator struct {
	Program string
	// Map is the one that a program of iter/bpf_map_elem goes through.
	Map string
	// PID, if set, is the only process whose objects are of interest. The kernel goes
	// through no others, where it can (6.1, f0d74c4da1f0); so the program looks too.
	PID uint32
}

// Prepare does all that takes capabilities to run an iterator program later. Iterators
// are there from kernel 5.8 on, those through maps from 5.9.
//
// Returns ErrNotPermitted and ErrUnsupported.
func (o *Objects) Prepare(i Iterator) error {
	if o.iterators[i] != nil {
		return nil
	}
	prog, err := o.Program(i.Program)
	if err != nil {
		return fmt.Errorf("iterator %s: %w", i.Program, missing(err))
	}
	it, err := attachIterator(prog, o.Maps[i.Map], i.PID)
	if err != nil {
		return fmt.Errorf("attach %s: %w", o.spec.Programs[i.Program].SectionName, Classify(err))
	}
	o.iterators[i] = it
	if i.PID != 0 {
		return o.Prepare(i.everyone())
	}
	return nil
}

// everyone is the iterator over all processes.
func (i Iterator) everyone() Iterator {
	i.PID = 0
	return i
}

// missing is Classify, for a program that does not load: what it is to be called for, or
// reads, is not in the kernel's types.
func missing(err error) error {
	if reason := Reason(err); reason == reasonNotThere || reason == reasonLacksType {
		return fmt.Errorf("%w: %s", ErrUnsupported, reason)
	}
	return Classify(err)
}

func attachIterator(prog *ebpf.Program, m *ebpf.Map, pid uint32) (*link.Iter, error) {
	if pid != 0 {
		if it, err := attachToProcess(prog, pid); err == nil {
			return it, nil
		}
	}
	return link.AttachIter(link.IterOptions{Program: prog, Map: m})
}

// taskIterAttr is the part of union bpf_attr for BPF_LINK_CREATE of an iterator of tasks.
type taskIterAttr struct {
	progFD, targetFD, attachType, flags uint32
	info                                *taskIterInfo
	infoLen, _                          uint32
}

// taskIterInfo is the task's part of union bpf_iter_link_info.
type taskIterInfo struct{ _, pid, _ uint32 }

// newTaskIterAttr refers to info by a pointer, which the garbage collector knows, and changes
// if a stack moves: an address kept as an integer would be wrong then.
func newTaskIterAttr(progFD int, pid uint32) *taskIterAttr {
	info := &taskIterInfo{pid: pid}
	return &taskIterAttr{
		progFD: uint32(progFD), attachType: unix.BPF_TRACE_ITER, info: info, infoLen: uint32(unsafe.Sizeof(*info)),
	}
}

// attachToProcess attaches an iterator of tasks, or of what tasks have, that goes through
// the threads of one process.
func attachToProcess(prog *ebpf.Program, pid uint32) (*link.Iter, error) {
	attr := newTaskIterAttr(prog.FD(), pid)
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_LINK_CREATE, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr))
	runtime.KeepAlive(prog)
	runtime.KeepAlive(attr)
	if errno != 0 {
		return nil, errno
	}
	l, err := link.NewFromFD(int(fd))
	if err != nil {
		return nil, err
	}
	it, ok := l.(*link.Iter)
	if !ok {
		return nil, errors.Join(fmt.Errorf("link is a %T", l), l.Close())
	}
	return it, nil
}

// Iterate runs an iterator program and calls yield with each row that it sends
// (list.bpf.h). A row is good until yield returns.
//
// Returns ErrNotPermitted and ErrUnsupported.
func (o *Objects) Iterate(i Iterator, yield func([]byte) error) error {
	if err := o.Prepare(i); err != nil {
		return err
	}
	rows := 0
	err := o.iterate(i, func(row []byte) error {
		rows++
		return yield(row)
	})
	// Before 6.7 the kernel may pass over the threads of a process whose first one has ended.
	if err == nil && rows == 0 && i.PID != 0 {
		return o.iterate(i.everyone(), yield)
	}
	return err
}

func (o *Objects) iterate(i Iterator, yield func([]byte) error) error {
	r, err := o.iterators[i].Open()
	if err != nil {
		return fmt.Errorf("open iterator %s: %w", i.Program, err)
	}
	defer r.Close()
	return records(bufio.NewReaderSize(patient{r}, 64<<10), yield)
}

// patient reads again when the kernel asks for that: after a million objects that the
// program had nothing to say of.
type patient struct{ io.Reader }

func (p patient) Read(b []byte) (int, error) {
	for {
		n, err := p.Reader.Read(b)
		if n > 0 || !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
}

// recordMax is more than the kernel lets an iterator say of one object.
const recordMax = 64 << 10

func records(r io.Reader, yield func([]byte) error) error {
	record := make([]byte, recordMax)
	for {
		_, err := io.ReadFull(r, record[:4])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read iterator: %w", err)
		}
		size := binary.NativeEndian.Uint32(record)
		if size > recordMax {
			return fmt.Errorf("read iterator: a row of %d bytes", size)
		}
		if _, err := io.ReadFull(r, record[:size]); errors.Is(err, io.EOF) {
			return fmt.Errorf("read iterator: %w", io.ErrUnexpectedEOF)
		} else if err != nil {
			return fmt.Errorf("read iterator: %w", err)
		}
		if err := yield(record[:size]); err != nil {
			return err
		}
	}
}
