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
	// Map is the map that a program of type iter/bpf_map_elem iterates over.
	Map string
	// PID, if set, restricts the iterator to the objects of one process. Kernels before 6.1
	// (f0d74c4da1f0) iterate over all processes nevertheless, so the program must filter too.
	PID uint32
}

// Prepare loads and attaches an iterator, so that it can be run later without capabilities.
// Iterators are supported since Linux 5.8, those over map entries since 5.9.
//
// Returns ErrNotPermitted and ErrUnsupported.
func (o *Objects) Prepare(i Iterator) error {
	if o.iterators[i] != nil {
		return nil
	}
	prog, err := o.Program(i.Program)
	if err != nil {
		return fmt.Errorf("load iterator %s: %w", i.Program, classifyLoad(err))
	}
	it, err := attachIterator(prog, o.Maps[i.Map], i.PID)
	if err != nil {
		return fmt.Errorf("attach %s: %w", o.spec.Programs[i.Program].SectionName, Classify(err))
	}
	o.iterators[i] = it
	if i.PID != 0 {
		return o.Prepare(i.allProcesses())
	}
	return nil
}

// allProcesses returns the iterator without the restriction to a process.
func (i Iterator) allProcesses() Iterator {
	i.PID = 0
	return i
}

// classifyLoad is Classify for a program that does not load. It returns ErrUnsupported also if the
// kernel lacks the iterator, or a type that the program reads.
func classifyLoad(err error) error {
	switch Reason(err) {
	case reasonUnsupported:
		return ErrUnsupported
	case reasonNoType:
		return fmt.Errorf("%w: a type or field that the program reads does not exist", ErrUnsupported)
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

// taskIterAttr is the part of union bpf_attr for BPF_LINK_CREATE that attaches an iterator over
// tasks.
type taskIterAttr struct {
	progFD, targetFD, attachType, flags uint32
	info                                *taskIterInfo
	infoLen, _                          uint32
}

// taskIterInfo is the struct task in union bpf_iter_link_info.
type taskIterInfo struct{ _, pid, _ uint32 }

// newTaskIterAttr refers to info by a pointer, which the runtime updates when it moves a stack. An
// address in an integer would become invalid.
func newTaskIterAttr(progFD int, pid uint32) *taskIterAttr {
	info := &taskIterInfo{pid: pid}
	return &taskIterAttr{
		progFD: uint32(progFD), attachType: unix.BPF_TRACE_ITER, info: info, infoLen: uint32(unsafe.Sizeof(*info)),
	}
}

// attachToProcess attaches an iterator over tasks, or over objects of tasks, that is restricted to
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

// Iterate runs an iterator program and calls yield with each row that it sends (list.bpf.h). A row
// is valid until yield returns.
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
	// Kernels before 6.7 can skip the threads of a process whose first thread has exited.
	if err == nil && rows == 0 && i.PID != 0 {
		return o.iterate(i.allProcesses(), yield)
	}
	return err
}

func (o *Objects) iterate(i Iterator, yield func([]byte) error) error {
	r, err := o.iterators[i].Open()
	if err != nil {
		return fmt.Errorf("open iterator %s: %w", i.Program, err)
	}
	defer r.Close()
	return records(bufio.NewReaderSize(retryReader{r}, 64<<10), yield)
}

// retryReader repeats reads that return EAGAIN: the kernel returns it after a million objects for
// which the program wrote nothing.
type retryReader struct{ io.Reader }

func (r retryReader) Read(b []byte) (int, error) {
	for {
		n, err := r.Reader.Read(b)
		if n > 0 || !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
}

// recordMax exceeds the number of bytes that the kernel lets an iterator write for one object.
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
			return fmt.Errorf("read iterator: row has %d bytes, the maximum is %d", size, recordMax)
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
