package probe

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Iterator is a program that the kernel calls for each object of a kind.
type Iterator struct {
	Program string
	// Map is the one that a program of iter/bpf_map_elem goes through.
	Map string
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
		return fmt.Errorf("iterator %s: %w", i.Program, Classify(err))
	}
	it, err := link.AttachIter(link.IterOptions{Program: prog, Map: o.Maps[i.Map]})
	if err != nil {
		return fmt.Errorf("attach %s: %w", o.spec.Programs[i.Program].SectionName, Classify(err))
	}
	o.iterators[i] = it
	return nil
}

// Iterate runs an iterator program and calls yield with each record of size bytes
// that it writes. A record is good until yield returns.
//
// Returns ErrNotPermitted and ErrUnsupported.
func (o *Objects) Iterate(i Iterator, size int, yield func([]byte) error) error {
	if err := o.Prepare(i); err != nil {
		return err
	}
	it := o.iterators[i]
	delete(o.iterators, i)
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return fmt.Errorf("open iterator %s: %w", i.Program, err)
	}
	defer r.Close()
	return records(bufio.NewReaderSize(patient{r}, 64<<10), size, yield)
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

func records(r io.Reader, size int, yield func([]byte) error) error {
	record := make([]byte, size)
	for {
		_, err := io.ReadFull(r, record)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read iterator: %w", err)
		}
		if err := yield(record); err != nil {
			return err
		}
	}
}
