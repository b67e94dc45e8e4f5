package agent

import (
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/metric"
)

// labelColumns lists the columns that are labels unless the configuration says otherwise. Process IDs, names
// of tasks, paths and addresses are not, because each new value is a new series.
func labelColumns() []string {
	return []string{
		"abi", "cache", "container", "device", "direction", "disk", "driver", "errno", "fstype", "func", "function",
		"hardirq", "interface", "language", "namespace", "op", "protocol", "queue", "reason", "signal", "softirq",
		"state", "syscall", "type", "unit",
	}
}

// personalColumns lists the columns that are in log records only if the configuration names them: arguments,
// paths, and contents of commands and traffic.
func personalColumns() []string {
	return []string{
		"args", "arguments", "cwd", "data", "exe", "file", "line", "new_path", "old_path", "path", "query", "source", "target", "text",
	}
}

// defaultLabels returns the columns that are labels unless the configuration says otherwise.
func defaultLabels(all []column.Column) []string {
	return slices.DeleteFunc(column.Keys(all), func(key string) bool {
		return !slices.Contains(labelColumns(), key) || column.Find(all, key).Off
	})
}

// defaultAttributes returns the columns of log records unless the configuration says otherwise.
func defaultAttributes(all []column.Column) []string {
	owner := []string{"container", "container_id", "namespace", "pod", "unit", "user"}
	var keys []string
	for i := range all {
		c := &all[i]
		isExtra := c.Extra && !slices.Contains(owner, c.Key)
		if !isExtra && !c.Off && !slices.Contains(personalColumns(), c.Key) {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// quantity is how the values of a column become a metric.
type quantity struct {
	// word is the part of the metric's name for the column; "" if the unit says it all.
	word    string
	unit    metric.Unit
	divisor uint64
}

// quantityOf derives it from the unit in the column's key.
func quantityOf(key string) quantity {
	for _, u := range []struct {
		suffix  string
		unit    metric.Unit
		divisor uint64
	}{
		{"ns", metric.Seconds, 1e9}, {"us", metric.Seconds, 1e6}, {"ms", metric.Seconds, 1e3}, {"bytes", metric.Bytes, 1},
	} {
		if key == u.suffix {
			return quantity{"", u.unit, u.divisor}
		}
		if word, ok := strings.CutSuffix(key, "_"+u.suffix); ok {
			if word == "total" { // of a sum of times: counters end in _total anyway
				word = "time"
			}
			return quantity{word, u.unit, u.divisor}
		}
	}
	if key == "count" {
		key = "events"
	}
	return quantity{key, "{event}", 1}
}

// name returns the parts of a metric's name.
func (q quantity) name(entry string) []string {
	if q.word == "" {
		return []string{entry}
	}
	return []string{entry, q.word}
}
