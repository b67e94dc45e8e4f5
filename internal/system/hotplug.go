package system

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Hotplug tells of CPUs that come online. The kernel sends a message when one does; where
// these cannot be had, the CPUs that were not there are tried now and then.
type Hotplug struct {
	socket int // -1 if there is none
	next   time.Time
}

// retry is how often CPUs are tried.
const retry = time.Second

// ueventGroup is the group of the kernel's own messages, not those of udev.
const ueventGroup = 1

// OpenHotplug begins to listen.
func OpenHotplug() *Hotplug {
	none := &Hotplug{socket: -1}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return none
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: ueventGroup}); err != nil {
		unix.Close(fd)
		return none
	}
	return &Hotplug{socket: fd}
}

// Socket is what can be read from when there is a message, or -1.
func (h *Hotplug) Socket() int { return h.socket }

// Timeout is how long to wait for a message, in milliseconds.
func (h *Hotplug) Timeout() int {
	if h.socket >= 0 {
		return -1
	}
	return int(retry.Milliseconds())
}

// Arrived lists the CPUs that came, or may have come, since the last call. missing
// lists those that were not there.
func (h *Hotplug) Arrived(missing func() []int) (cpus []int) {
	if h.socket < 0 {
		if now := time.Now(); now.After(h.next) {
			h.next = now.Add(retry)
			return missing()
		}
		return nil
	}
	message := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(h.socket, message, 0)
		switch {
		case err == unix.EINTR:
		case err == unix.ENOBUFS: // messages were lost
			cpus = append(cpus, missing()...)
		case err != nil:
			return cpus
		default:
			if cpu, ok := cpuOnline(message[:n]); ok {
				cpus = append(cpus, cpu)
			}
		}
	}
}

// cpuOnline reads "online@/devices/system/cpu/cpu1", with more behind a NUL.
func cpuOnline(message []byte) (cpu int, ok bool) {
	head, _, _ := bytes.Cut(message, []byte{0})
	number, ok := bytes.CutPrefix(head, []byte("online@/devices/system/cpu/cpu"))
	if !ok {
		return 0, false
	}
	cpu, err := strconv.Atoi(string(number))
	return cpu, err == nil
}

// Close ends it.
func (h *Hotplug) Close() error {
	if h.socket < 0 {
		return nil
	}
	return unix.Close(h.socket)
}
