package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// Line is a fact as text.
type Line struct {
	Name, Value string
	// Problem describes how the fact can prevent tools from running, and the remedy. It is ""
	// if there is no problem.
	Problem string
}

// Lines returns the facts as text, in a fixed order.
func (f *Facts) Lines() []Line {
	return []Line{
		{Name: "kernel", Value: f.Kernel + " " + f.Architecture},
		f.lineBTF(),
		{Name: "ring buffer", Value: choose(f.RingBuffer, "yes", "no: perf buffers are used")},
		f.lineTracefs(),
		f.lineLockdown(),
		f.lineCapabilities(),
		f.lineUserNamespace(),
		f.linePIDNamespace(),
		{Name: "seccomp", Value: f.seccomp()},
		f.lineParanoid(),
		{Name: "kptr_restrict", Value: number(f.KptrRestrict)},
		{Name: "unprivileged_bpf_disabled", Value: number(f.UnprivilegedBPFDisabled)},
		{Name: "bpf_jit_enable", Value: number(f.JIT)},
		{Name: "cgroups", Value: f.cgroups()},
		{Name: "container runtimes", Value: or(strings.Join(f.Runtimes, ", "), "none found")},
		f.lineMemlock(),
		{Name: "open files", Value: f.limit("open_files", f.OpenFiles, 1, "")},
	}
}

const unknown = "unknown: not accessible to this process"

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

func choose(b *bool, yes, no string) string {
	switch {
	case b == nil:
		return unknown
	case *b:
		return yes
	}
	return no
}

func number(n *int) string {
	if n == nil {
		return unknown
	}
	return strconv.Itoa(*n)
}

func (f *Facts) limit(key string, n *uint64, unit uint64, name string) string {
	switch {
	case f.isUnknown(key):
		return unknown
	case n == nil:
		return "no limit"
	}
	return strings.TrimSpace(fmt.Sprint(*n/unit, " ", name))
}

func (f *Facts) lineBTF() Line {
	if f.BTF == "" {
		return Line{"BTF", "none", f.noBTF()}
	}
	return Line{"BTF", f.BTF, ""}
}

func (f *Facts) lineTracefs() Line {
	switch {
	case f.isUnknown("tracefs"):
		return Line{"tracefs", unknown, ""}
	case f.Tracefs == "":
		return Line{"tracefs", "not mounted; few hooks need it", ""}
	case !f.TracefsReadable:
		return Line{"tracefs", f.Tracefs + ", not readable by this process; few hooks need it", ""}
	}
	return Line{"tracefs", f.Tracefs, ""}
}

func (f *Facts) lineLockdown() Line {
	if f.Lockdown == confidentiality {
		return Line{"lockdown", f.Lockdown, lockedDown}
	}
	return Line{"lockdown", or(f.Lockdown, "unknown: securityfs is not mounted or not readable by this process"), ""}
}

// lineCapabilities lists the capabilities. If there are many, it only names those that all tools
// need, and the number of all.
func (f *Facts) lineCapabilities() Line {
	if f.isUnknown("capabilities") {
		return Line{"capabilities", unknown, ""}
	}
	missing := f.missing(Needs)
	if missing != 0 {
		return Line{"capabilities", f.effective.String(), f.notPermitted(Needs)}
	}
	if n := len(f.Capabilities); n > 8 {
		return Line{"capabilities", fmt.Sprintf("%d, including %s", n, Needs), ""}
	}
	return Line{"capabilities", f.effective.String(), ""}
}

func (f *Facts) lineUserNamespace() Line {
	switch {
	case f.isUnknown("user_namespace"):
		return Line{"user namespace", unknown, ""}
	case f.UserNamespace:
		return Line{"user namespace", "not the initial one", inUserNamespace}
	}
	return Line{"user namespace", "the initial one", ""}
}

func (f *Facts) linePIDNamespace() Line {
	const name = "PID namespace"
	switch {
	case f.OtherProc:
		return Line{name, "not the one of /proc", otherProc}
	case f.isUnknown("pid_namespace"):
		return Line{name, unknown, ""}
	case f.PIDNamespace:
		return Line{name, "a child: --pid and --tid have its IDs, rows have those of the initial one", ""}
	}
	return Line{name, "the initial one", ""}
}

func (f *Facts) seccomp() string {
	switch f.Seccomp {
	case "":
		return unknown
	case "none":
		return "no filter"
	}
	return f.Seccomp + ": bpf and perf_event_open must be allowed"
}

func (f *Facts) lineParanoid() Line {
	if f.isPerfRestricted() {
		return Line{"perf_event_paranoid", number(f.PerfEventParanoid) + ", which restricts perf events to CAP_SYS_ADMIN", ""}
	}
	return Line{"perf_event_paranoid", number(f.PerfEventParanoid), ""}
}

func (f *Facts) cgroups() string {
	if f.isUnknown("cgroups") {
		return unknown
	}
	var versions []string
	for _, m := range f.Cgroups {
		if v := fmt.Sprint("v", m.Version); !strings.Contains(strings.Join(versions, " "), v) {
			versions = append(versions, v)
		}
	}
	if len(versions) == 0 {
		return "none mounted: events have no cgroup or container"
	}
	return strings.Join(versions, " and ") + ", events have the cgroup in " + f.CgroupDefault
}

func (f *Facts) lineMemlock() Line {
	text := f.limit("memlock_bytes", f.MemlockBytes, 1<<10, "KiB")
	switch {
	case f.isMemlockLimited():
		return Line{"locked memory", text, f.memlock()}
	case f.MemlockCounts != nil && !*f.MemlockCounts:
		text += ", does not apply to BPF on this kernel"
	}
	return Line{"locked memory", text, ""}
}
