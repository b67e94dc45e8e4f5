package system

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Hotplug reports CPUs that come online, from the kernel's uevents. If the netlink socket for these
// is not available, the caller must try the missing CPUs once per second.
type Hotplug struct {
	socket int // -1 if not available
	next   time.Time
}

// retry is the interval at which missing CPUs are tried.
const retry = time.Second

// ueventGroup is the multicast group of messages from the kernel, not from udev.
const ueventGroup = 1

// OpenHotplug subscribes to the kernel's uevents.
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

// Socket returns a file descriptor that is readable if there is a message, or -1.
func (h *Hotplug) Socket() int { return h.socket }

// Timeout returns how long to wait for a message before the next call of Arrived, in milliseconds;
// -1 is without limit.
func (h *Hotplug) Timeout() int {
	if h.socket >= 0 {
		return -1
	}
	return int(retry.Milliseconds())
}

// Arrived lists the CPUs that have come online, or can have come online, since the last call.
// missing lists the CPUs that the caller regards as offline.
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

// cpuOnline returns the CPU of a message "online@/devices/system/cpu/cpu1", which a NUL and further
// fields follow.
func cpuOnline(message []byte) (cpu int, ok bool) {
	head, _, _ := bytes.Cut(message, []byte{0})
	number, ok := bytes.CutPrefix(head, []byte("online@/devices/system/cpu/cpu"))
	if !ok {
		return 0, false
	}
	cpu, err := strconv.Atoi(string(number))
	return cpu, err == nil
}

// Close closes the socket.
func (h *Hotplug) Close() error {
	if h.socket < 0 {
		return nil
	}
	return unix.Close(h.socket)
}
