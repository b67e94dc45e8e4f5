package kvmexit

import (
	"encoding/binary"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of /dev/kvm for x86 (include/uapi/linux/kvm.h).
const (
	createVM        = 0xae01
	vcpuMmapSize    = 0xae04
	createVCPU      = 0xae41
	setMemoryRegion = 0x4020ae46
	runVCPU         = 0xae80
	setRegs         = 0x4090ae82
	getSregs        = 0x8138ae83
	setSregs        = 0x4138ae84

	exitIO  = 2
	exitHLT = 5
)

// request makes a request, and returns its result.
func request(t *testing.T, fd int, nr uintptr, arg unsafe.Pointer) int {
	t.Helper()
	for {
		r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), nr, uintptr(arg))
		if errno == unix.EINTR {
			continue // by a signal of the Go runtime
		}
		if errno != 0 {
			t.Fatalf("ioctl %#x: %v", nr, errno)
		}
		return int(r)
	}
}

// guest is a virtual machine with one vCPU, whose program writes to an I/O port a number of times, and
// then halts.
type guest struct {
	vcpu int
	run  []byte
}

func newGuest(t *testing.T, writes uint16) *guest {
	t.Helper()
	kvm, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil || runtime.GOARCH != "amd64" {
		t.Skipf("no virtual machine of x86 can run here: %v", err)
	}
	t.Cleanup(func() { unix.Close(kvm) })
	if !hasModule("kvm_intel") && !hasModule("kvm_amd") {
		t.Skip("KVM uses neither VMX nor SVM here: it emulates the instructions of this guest, without exits")
	}
	vm := request(t, kvm, createVM, nil)
	t.Cleanup(func() { unix.Close(vm) })
	page := os.Getpagesize()
	memory := area(t, -1, page, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	code := []byte{0xb9, byte(writes), byte(writes >> 8), 0xe6, 0x10, 0xe2, 0xfc, 0xf4} // mov cx; out; loop; hlt
	copy(memory, code)
	region := struct {
		slot, flags         uint32
		guest, size, memory uint64
	}{guest: 0x1000, size: uint64(page), memory: uint64(uintptr(unsafe.Pointer(&memory[0])))}
	request(t, vm, setMemoryRegion, unsafe.Pointer(&region))
	g := &guest{vcpu: request(t, vm, createVCPU, nil)}
	t.Cleanup(func() { unix.Close(g.vcpu) })
	g.run = area(t, g.vcpu, request(t, kvm, vcpuMmapSize, nil), unix.MAP_SHARED)
	var sregs [312]byte
	request(t, g.vcpu, getSregs, unsafe.Pointer(&sregs))
	clear(sregs[:8])    // base of cs
	clear(sregs[12:14]) // selector of cs
	request(t, g.vcpu, setSregs, unsafe.Pointer(&sregs))
	regs := [18]uint64{16: 0x1000, 17: 2} // rip, rflags
	request(t, g.vcpu, setRegs, unsafe.Pointer(&regs))
	return g
}

func hasModule(name string) bool {
	_, err := os.Stat("/sys/module/" + name)
	return err == nil
}

func area(t *testing.T, fd, size, flags int) []byte {
	t.Helper()
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

// halt runs the vCPU until it halts, and returns how often it has written to the port.
func (g *guest) halt(t *testing.T) (writes int) {
	t.Helper()
	for {
		request(t, g.vcpu, runVCPU, nil)
		switch reason := binary.NativeEndian.Uint32(g.run[8:]); reason {
		case exitIO:
			writes++
		case exitHLT:
			return writes
		default:
			t.Fatalf("vCPU exits with reason %d", reason)
		}
	}
}
