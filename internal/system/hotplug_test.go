package system

import (
	"slices"
	"testing"
)

func TestCPUOnline(t *testing.T) {
	for message, want := range map[string]int{
		"online@/devices/system/cpu/cpu12\x00ACTION=online\x00DEVPATH=/devices/system/cpu/cpu12\x00SUBSYSTEM=cpu": 12,
		"online@/devices/system/cpu/cpu0":        0,
		"offline@/devices/system/cpu/cpu1\x00":   -1,
		"online@/devices/system/memory/memory1":  -1,
		"online@/devices/system/cpu/cpuidle\x00": -1,
		"":                                       -1,
	} {
		cpu, ok := cpuOnline([]byte(message))
		if ok != (want >= 0) || ok && cpu != want {
			t.Errorf("%q: %d, %v, want %d", message, cpu, ok, want)
		}
	}
}

// Without the kernel's messages the CPUs that were not there are tried, once in a while.
func TestHotplugWithoutMessages(t *testing.T) {
	h := &Hotplug{socket: -1}
	missing := func() []int { return []int{3, 5} }
	if got := h.Arrived(missing); !slices.Equal(got, missing()) {
		t.Errorf("at first %v are tried", got)
	}
	if got := h.Arrived(missing); got != nil {
		t.Errorf("at once again %v are tried", got)
	}
	if h.Timeout() <= 0 {
		t.Error("it waits for messages that do not come")
	}
}
