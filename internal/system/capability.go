package system

import (
	"fmt"
	"iter"
	"math/bits"
	"strings"

	"golang.org/x/sys/unix"
)

// Capability is a capability as in capabilities(7), by its number in linux/capability.h.
type Capability int

// The capabilities that tools need or keep. String knows the names of all others.
const (
	CapDACReadSearch Capability = unix.CAP_DAC_READ_SEARCH
	CapIPCLock       Capability = unix.CAP_IPC_LOCK
	CapSysPtrace     Capability = unix.CAP_SYS_PTRACE
	CapSysAdmin      Capability = unix.CAP_SYS_ADMIN
	CapSysResource   Capability = unix.CAP_SYS_RESOURCE
	CapSyslog        Capability = unix.CAP_SYSLOG
	CapPerfmon       Capability = unix.CAP_PERFMON
	CapBPF           Capability = unix.CAP_BPF

	CapCheckpointRestore Capability = unix.CAP_CHECKPOINT_RESTORE
)

// capabilityNames are the names of all capabilities, in the order of their numbers.
const capabilityNames = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP " +
	"LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO " +
	"SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE " +
	"AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON " +
	"BPF CHECKPOINT_RESTORE"

// String returns the name, such as CAP_BPF, or CAP_63 for an unknown capability.
func (c Capability) String() string {
	if names := strings.Fields(capabilityNames); int(c) < len(names) {
		return "CAP_" + names[c]
	}
	return fmt.Sprintf("CAP_%d", int(c))
}

// Capabilities is a set of capabilities, one bit each.
type Capabilities uint64

// Set returns the set of the given capabilities.
func Set(all ...Capability) (s Capabilities) {
	for _, c := range all {
		s |= 1 << c
	}
	return s
}

// Has reports whether a capability is in the set.
func (s Capabilities) Has(c Capability) bool { return s&(1<<c) != 0 }

// All iterates over the set in descending order of numbers, so that CAP_BPF and CAP_PERFMON, which
// most tools need, are near the start.
func (s Capabilities) All() iter.Seq[Capability] {
	return func(yield func(Capability) bool) {
		for rest := s; rest != 0; {
			c := Capability(bits.Len64(uint64(rest)) - 1)
			if !yield(c) {
				return
			}
			rest &^= 1 << c
		}
	}
}

// Names lists the names. It is not nil for the empty set.
func (s Capabilities) Names() []string {
	names := []string{}
	for c := range s.All() {
		names = append(names, c.String())
	}
	return names
}

// String returns the names, separated by commas, or "none".
func (s Capabilities) String() string {
	if s == 0 {
		return "none"
	}
	return strings.Join(s.Names(), ", ")
}
