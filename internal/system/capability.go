package system

import (
	"fmt"
	"iter"
	"math/bits"
	"strings"

	"golang.org/x/sys/unix"
)

// Capability is one of capabilities(7), by its number in linux/capability.h.
type Capability int

// Those that tools need, or keep. The rest are known by their names alone.
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

// capabilityNames are all there are, by their numbers.
const capabilityNames = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP " +
	"LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO " +
	"SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE " +
	"AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON " +
	"BPF CHECKPOINT_RESTORE"

// String is the name, as CAP_BPF, or CAP_63 for one that is not known.
func (c Capability) String() string {
	if names := strings.Fields(capabilityNames); int(c) < len(names) {
		return "CAP_" + names[c]
	}
	return fmt.Sprintf("CAP_%d", int(c))
}

// Capabilities is a set of them, a bit each.
type Capabilities uint64

// Set makes a set.
func Set(all ...Capability) (s Capabilities) {
	for _, c := range all {
		s |= 1 << c
	}
	return s
}

// Has tells whether a capability is in the set.
func (s Capabilities) Has(c Capability) bool { return s&(1<<c) != 0 }

// All goes through the set, the newest first, as CAP_BPF and CAP_PERFMON are what tools
// are about.
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

// Names lists the names, none as an empty list.
func (s Capabilities) Names() []string {
	names := []string{}
	for c := range s.All() {
		names = append(names, c.String())
	}
	return names
}

// String is the names, or "none".
func (s Capabilities) String() string {
	if s == 0 {
		return "none"
	}
	return strings.Join(s.Names(), ", ")
}
