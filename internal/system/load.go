package system

import (
	"os"
	"strings"
)

// LoadAverage returns the load averages as /proc/loadavg has them, "loadavg: 0.10 0.20
// 0.15 1/234 5678", or "" where it cannot be read.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return "loadavg: " + strings.TrimSpace(string(text))
}
