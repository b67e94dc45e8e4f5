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

// TestHotplugWithoutMessages expects that without a socket the missing CPUs are tried, once per
// interval.
func TestHotplugWithoutMessages(t *testing.T) {
	h := &Hotplug{socket: -1}
	missing := func() []int { return []int{3, 5} }
	if got := h.Arrived(missing); !slices.Equal(got, missing()) {
		t.Errorf("first call: CPUs %v, want %v", got, missing())
	}
	if got := h.Arrived(missing); got != nil {
		t.Errorf("second call within the interval: CPUs %v, want none", got)
	}
	if h.Timeout() <= 0 {
		t.Errorf("timeout %d, want more than 0 without a socket", h.Timeout())
	}
}
