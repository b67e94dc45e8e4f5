package system

import (
	"os"
	"strings"
)

// LoadAverage returns the content of /proc/loadavg as "loadavg: 0.10 0.20 0.15 1/234 5678", or ""
// if it cannot be read.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return "loadavg: " + strings.TrimSpace(string(text))
}
