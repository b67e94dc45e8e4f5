// Package tools is the list of all tools.
package tools

import (
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools/argdist"
	"github.com/corescope/corescope/tools/bashreadline"
	"github.com/corescope/corescope/tools/biolatency"
	"github.com/corescope/corescope/tools/biosnoop"
	"github.com/corescope/corescope/tools/biotop"
	"github.com/corescope/corescope/tools/bpflist"
	"github.com/corescope/corescope/tools/bpftop"
	"github.com/corescope/corescope/tools/cachestat"
	"github.com/corescope/corescope/tools/execsnoop"
	"github.com/corescope/corescope/tools/files"
	"github.com/corescope/corescope/tools/filetop"
	"github.com/corescope/corescope/tools/fsdist"
	"github.com/corescope/corescope/tools/fsslower"
	"github.com/corescope/corescope/tools/funccount"
	"github.com/corescope/corescope/tools/funclatency"
	"github.com/corescope/corescope/tools/gethostlatency"
	"github.com/corescope/corescope/tools/javagc"
	"github.com/corescope/corescope/tools/maps"
	"github.com/corescope/corescope/tools/offcputime"
	"github.com/corescope/corescope/tools/offwaketime"
	"github.com/corescope/corescope/tools/opensnoop"
	"github.com/corescope/corescope/tools/profile"
	"github.com/corescope/corescope/tools/runqlat"
	"github.com/corescope/corescope/tools/sockets"
	"github.com/corescope/corescope/tools/sslsniff"
	"github.com/corescope/corescope/tools/stackcount"
	"github.com/corescope/corescope/tools/syscount"
	"github.com/corescope/corescope/tools/tasks"
	"github.com/corescope/corescope/tools/tcpaccept"
	"github.com/corescope/corescope/tools/tcpconnect"
	"github.com/corescope/corescope/tools/tcpdrop"
	"github.com/corescope/corescope/tools/tcplife"
	"github.com/corescope/corescope/tools/tcpretrans"
	"github.com/corescope/corescope/tools/tcpstates"
	"github.com/corescope/corescope/tools/tcptop"
	"github.com/corescope/corescope/tools/trace"
	"github.com/corescope/corescope/tools/vfsstat"
	"github.com/corescope/corescope/tools/wakeuptime"
)

// All returns every tool, by name.
func All() []*tool.Tool {
	return []*tool.Tool{
		argdist.Tool,
		bashreadline.Tool,
		biolatency.Tool,
		biosnoop.Tool,
		biotop.Tool,
		bpflist.Tool,
		bpftop.Tool,
		cachestat.Tool,
		execsnoop.Tool,
		files.Tool,
		filetop.Tool,
		fsdist.Tool,
		fsslower.Tool,
		funccount.Tool,
		funclatency.Tool,
		gethostlatency.Tool,
		javagc.Tool,
		maps.Tool,
		offcputime.Tool,
		offwaketime.Tool,
		opensnoop.Tool,
		profile.Tool,
		runqlat.Tool,
		sockets.Tool,
		sslsniff.Tool,
		stackcount.Tool,
		syscount.Tool,
		tasks.Tool,
		tcpaccept.Tool,
		tcpconnect.Tool,
		tcpdrop.Tool,
		tcplife.Tool,
		tcpretrans.Tool,
		tcpstates.Tool,
		tcptop.Tool,
		trace.Tool,
		vfsstat.Tool,
		wakeuptime.Tool,
	}
}
