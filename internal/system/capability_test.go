package system

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCapabilityNames(t *testing.T) {
	for c, name := range map[Capability]string{
		unix.CAP_CHOWN: "CAP_CHOWN", CapDACReadSearch: "CAP_DAC_READ_SEARCH", CapIPCLock: "CAP_IPC_LOCK",
		CapSysPtrace: "CAP_SYS_PTRACE", CapSysAdmin: "CAP_SYS_ADMIN", CapSysResource: "CAP_SYS_RESOURCE",
		CapSyslog: "CAP_SYSLOG", CapPerfmon: "CAP_PERFMON", CapBPF: "CAP_BPF",
		unix.CAP_LAST_CAP: "CAP_CHECKPOINT_RESTORE", 63: "CAP_63",
	} {
		if c.String() != name {
			t.Errorf("Capability(%d) = %s, want %s", int(c), c, name)
		}
	}
	set := Set(CapSysAdmin, CapBPF, CapPerfmon, 63)
	if got, want := set.String(), "CAP_63, CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN"; got != want {
		t.Errorf("set %s, want %s", got, want)
	}
	if got := Capabilities(0).String(); got != "none" || len(Capabilities(0).Names()) != 0 {
		t.Errorf("empty set %q, want none", got)
	}
}

// TestEffective compares Effective with /proc.
func TestEffective(t *testing.T) {
	got, err := Effective()
	if err != nil {
		t.Fatal(err)
	}
	if want := threadStatus(t, "thread-self")["CapEff"]; want != hex(got) {
		t.Errorf("Effective() = %s, want %s as in /proc", hex(got), want)
	}
}

// TestTry checks that Try restricts the capabilities during the call and restores them.
func TestTry(t *testing.T) {
	all, err := Effective()
	if err != nil || !all.Has(CapBPF) {
		t.Skipf("needs CAP_BPF: %v", err)
	}
	err = Try(Set(CapBPF), func() error {
		if inside, err := Effective(); err != nil || inside != Set(CapBPF) {
			t.Errorf("capabilities in Try: %v, %v, want CAP_BPF", inside, err)
		}
		return os.ErrExist
	})
	if after, err2 := Effective(); err != os.ErrExist || err2 != nil || after != all {
		t.Errorf("Try: %v, want %v; capabilities after it: %v, %v, want %v", err, os.ErrExist, after, err2, all)
	}
}

func threadStatus(t *testing.T, thread string) map[string]string {
	t.Helper()
	data, err := os.ReadFile("/proc/" + thread + "/status")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(data)) {
		key, val, _ := strings.Cut(line, ":")
		fields[key] = strings.TrimSpace(val)
	}
	return fields
}

func hex(s Capabilities) string { return fmt.Sprintf("%016x", uint64(s)) }
