// Package tools is the list of all tools.
package tools

import (
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools/opensnoop"
)

// All returns every tool, by name.
func All() []*tool.Tool {
	return []*tool.Tool{
		opensnoop.Tool,
	}
}
