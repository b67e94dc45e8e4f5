package tcptest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// SilentHost is an address in the network of [SilentDevice]. No host answers there, not even to
// ARP, so packets to it wait in the queue of the neighbour table.
const SilentHost = "198.18.0.2"

// SilentDevice creates an Ethernet device without any hosts in this network namespace, which only
// this process may use. The device exists until the file is closed.
func SilentDevice() (*os.File, error) {
	const name = "silent0"
	// os.OpenFile would poll the device.
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	tap := os.NewFile(uintptr(fd), name)
	err = ioctl(fd, name, unix.TUNSETIFF, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI); return nil })
	if err == nil {
		err = setUp(name, []byte{198, 18, 0, 1})
	}
	if err != nil {
		tap.Close()
		return nil, err
	}
	// Repeat the ARP request for longer than any test lasts.
	if err := os.WriteFile("/proc/sys/net/ipv4/neigh/"+name+"/mcast_solicit", []byte("10000"), 0); err != nil {
		tap.Close()
		return nil, err
	}
	return tap, nil
}

// setUp sets the address of a device and sets it up.
func setUp(name string, addr []byte) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = ioctl(fd, name, unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(addr) })
	if err != nil {
		return err
	}
	return ioctl(fd, name, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP); return nil })
}

func ioctl(fd int, name string, request uint, set func(*unix.Ifreq) error) error {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := set(r); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, request, r); err != nil {
		return fmt.Errorf("set up %s: request %#x: %w", name, request, err)
	}
	return nil
}
