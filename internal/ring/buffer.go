package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// perfBuffer is the perf buffer of one CPU: a page with the positions of reader and writer,
// followed by the data, whose size is a power of two.
type perfBuffer struct {
	fd      int
	mem     []byte
	meta    *unix.PerfEventMmapPage
	data    []byte
	tail    uint64
	offline bool // the CPU is offline: poll would return immediately
}

// CanOpen returns the error if this thread cannot open a perf buffer, or nil.
func CanOpen() error {
	b, err := newPerfBuffer(0, unix.Getpagesize())
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	return b.Close()
}

// newPerfBuffer opens the buffer of a CPU. It returns ENODEV if the CPU is offline.
func newPerfBuffer(cpu, bytes int) (*perfBuffer, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_BPF_OUTPUT,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Sample_type: unix.PERF_SAMPLE_RAW,
		// Wake the reader for each record.
		Bits: unix.PerfBitWatermark, Wakeup: 1,
	}
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open perf event of CPU %d: %w", cpu, err)
	}
	mem, err := unix.Mmap(fd, 0, unix.Getpagesize()+bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("map perf buffer of CPU %d: %w", cpu, err)
	}
	meta := (*unix.PerfEventMmapPage)(unsafe.Pointer(&mem[0]))
	return &perfBuffer{fd: fd, mem: mem, meta: meta, data: mem[unix.Getpagesize():]}, nil
}

func (b *perfBuffer) Close() error {
	return errors.Join(unix.Munmap(b.mem), unix.Close(b.fd))
}

// perfHeader is the size of struct perf_event_header, and rawHeader the size of the length that
// follows it in a sample.
const (
	perfHeader = 8
	rawHeader  = 4
)

// drain calls yield with the samples that are in the buffer. Records of lost samples are skipped:
// bpf_perf_event_output has failed for each of them, so the program has counted them.
func (b *perfBuffer) drain(yield func(sample []byte)) {
	for head := atomic.LoadUint64(&b.meta.Data_head); b.tail < head; {
		var header [perfHeader + rawHeader]byte
		b.copy(header[:], b.tail)
		if binary.NativeEndian.Uint32(header[:]) == unix.PERF_RECORD_SAMPLE {
			sample := make([]byte, binary.NativeEndian.Uint32(header[perfHeader:]))
			b.copy(sample, b.tail+perfHeader+rawHeader)
			yield(sample)
		}
		b.tail += uint64(binary.NativeEndian.Uint16(header[6:]))
		atomic.StoreUint64(&b.meta.Data_tail, b.tail)
	}
}

// copy copies bytes from a position of the buffer, which can wrap around.
func (b *perfBuffer) copy(to []byte, at uint64) {
	n := copy(to, b.data[at%uint64(len(b.data)):])
	copy(to[n:], b.data)
}
