// Package fsnotifysnoop traces events of inotify and fanotify.
package fsnotifysnoop

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh fsnotifysnoop.bpf.c

type options struct {
	Inotify  bool   `flag:"inotify-only" bpf:"targ_inotify" help:"only events of inotify"`
	Fanotify bool   `flag:"fanotify-only" bpf:"targ_fanotify" help:"only events of fanotify"`
	Tracee   uint32 `flag:"tracee-pid" arg:"PID" min:"1" id:"process" bpf:"targ_tracee" help:"only events that this process caused"`
}

// Check returns an error if no event can be selected.
func (o *options) Check() error {
	if o.Inotify && o.Fanotify {
		return errors.New("--inotify-only and --fanotify-only exclude each other")
	}
	return nil
}

// tracee mirrors struct tracee.
type tracee struct {
	QueuedNs      uint64 `btf:"time_ns"`
	PID, TID, UID uint32
	Comm          value.Comm
	_             uint32
}

type event struct {
	value.Task
	Tracee     tracee
	Mask       uint32 `json:"mask" col:"MASK,width=10,right" help:"the event as a number: bits of inotify(7) or fanotify(7), and bits that only the kernel uses"`
	IsFanotify uint32
	WD         int32
	Cookie     uint32
	NameLen    uint32
	_          uint32
}

type row struct {
	event
	API        string      `json:"api" col:"API,width=8" help:"inotify or fanotify"`
	TraceePID  value.Count `json:"tracee_pid" col:"TRACEE_PID,width=10" help:"process that caused the event, in the initial PID namespace; absent if the event was queued before the run, and for Q_OVERFLOW"`
	TraceeTID  value.Count `json:"tracee_tid" col:"TRACEE_TID,width=10" help:"thread that caused the event; absent as tracee_pid"`
	TraceeUID  value.Count `json:"tracee_uid" col:"TRACEE_UID,width=10" help:"effective user ID of that thread; absent as tracee_pid"`
	TraceeComm value.Name  `json:"tracee_comm" col:"TRACEE_COMM,width=16" help:"name of that thread when it caused the event; empty if unknown"`
	Events     string      `json:"events" col:"EVENTS,width=24" help:"names of the bits of mask, without IN_ and FAN_, separated by |"`
	Name       value.Bytes `json:"name" col:"NAME,width=24" help:"name of the file: in the watched directory for inotify, of the file itself for fanotify; empty if the event has none, such as for a watched file, or fanotify with FAN_REPORT_FID"`
	Watch      value.Count `json:"watch" col:"WD,width=4" help:"watch descriptor of inotify; absent for fanotify"`
	Cookie     value.Count `json:"cookie" col:"COOKIE,width=8" help:"number that the two events of a rename have in common; absent for others"`
	Latency    value.Count `json:"latency_ns" col:"LAT(ns),width=12,right" help:"time from the queuing of the event to its reading (CLOCK_BOOTTIME); absent as tracee_pid"`
}

// Decode computes the derived columns.
func (r *row) Decode(tail []byte) error {
	if int(r.NameLen) > len(tail) {
		return fmt.Errorf("name of %d bytes in %d", r.NameLen, len(tail))
	}
	by := &r.Tracee
	known := by.QueuedNs != 0
	r.TraceePID, r.TraceeTID, r.TraceeUID = optional(by.PID, known), optional(by.TID, known), optional(by.UID, known)
	r.TraceeComm = value.NameOf(by.Comm[:])
	r.Latency = value.Count{N: uint64(r.Time) - by.QueuedNs, Given: known}
	r.API = "inotify"
	if r.IsFanotify != 0 {
		r.API = "fanotify"
	}
	r.Watch = optional(uint32(r.WD), r.IsFanotify == 0)
	r.Cookie = optional(r.event.Cookie, r.event.Cookie != 0)
	r.Events = names(r.Mask, r.IsFanotify != 0)
	r.Name = bytes.TrimRight(tail[:r.NameLen], "\x00")
	return nil
}

func optional(n uint32, given bool) value.Count {
	return value.Count{N: uint64(n), Given: given}
}

// names returns the names of the bits of a mask, as of include/linux/fsnotify_backend.h.
func names(mask uint32, fanotify bool) string {
	var out []string
	for _, bit := range []struct {
		mask uint32
		name string
	}{
		{0x1, "ACCESS"}, {0x2, "MODIFY"}, {0x4, "ATTRIB"}, {0x8, "CLOSE_WRITE"}, {0x10, "CLOSE_NOWRITE"}, {0x20, "OPEN"},
		{0x40, "MOVED_FROM"}, {0x80, "MOVED_TO"}, {0x100, "CREATE"}, {0x200, "DELETE"}, {0x400, "DELETE_SELF"}, {0x800, "MOVE_SELF"},
		{0x1000, "OPEN_EXEC"}, {0x2000, "UNMOUNT"}, {0x4000, "Q_OVERFLOW"}, {0x8000, ""},
		{0x10000, "OPEN_PERM"}, {0x20000, "ACCESS_PERM"}, {0x40000, "OPEN_EXEC_PERM"}, {0x100000, "PRE_ACCESS"},
		{0x1000000, "MNT_ATTACH"}, {0x2000000, "MNT_DETACH"}, {0x10000000, "RENAME"}, {0x40000000, "ISDIR"},
	} {
		switch {
		case mask&bit.mask == 0:
		case bit.name != "":
			out = append(out, bit.name)
		case fanotify:
			out = append(out, "FS_ERROR")
		default:
			out = append(out, "IGNORED")
		}
	}
	return strings.Join(out, "|")
}

// Tool is the definition of fsnotifysnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "fsnotifysnoop",
	Category: "file",
	Summary:  "Trace inotify and fanotify events: who watches files, and which process causes the events",
	Description: `Shows each event that a process reads from inotify(7) or fanotify(7), when it reads it: the process that watches, the process (tracee) that caused the event by its access to the file, the event, and the name of the file. It answers which programs watch files, and why a watching program is busy.

An event is queued in the context of the tracee (fsnotify_insert_event(), fsnotify_add_event() before kernel 5.17), and shown when it leaves the queue (fsnotify_remove_first_event()) in the context of the reader. Task filters and the columns of the task are those of the reader; --tracee-pid and the tracee columns select and show the other side.

The kernel merges an event with an equal one that is still queued, and drops events if the queue is full: the reader then gets Q_OVERFLOW. Such events have no row. They are counted in the summary (merged), for all watching processes, as are events that the kernel withdraws. Events that are still queued when the watching process closes its descriptor are counted as unread, and those of all processes that are queued at the end of the run as queued.

Only inotify and fanotify have queues: events of dnotify, audit rules and file servers in the kernel are not shown. The kernel has no tracepoint for this, so the tool needs fentry or kprobes.`,
	Peers: []string{
		"The tool of Inspektor Gadget is fsnotify. --tracer-pid is --pid; --inotify-only, --fanotify-only and --tracee-pid are the same.",
		"An event that the queue merged has no row; it is counted.",
		"The response to fanotify permission events is not shown.",
	},
	Examples: []string{
		"fsnotifysnoop                      # all events that are read",
		"fsnotifysnoop -p 1234              # events that one process reads",
		"fsnotifysnoop --inotify-only --tracee-pid 5678  # inotify events that a process causes",
		"fsnotifysnoop --columns +latency_ns --filter 'events contains \"DELETE\"'  # deletions, with the time in the queue",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(_ *options, _ *tool.Env) (tool.Source, error) {
	return &source.Events[row]{
		Plan:        tool.Plan{Settle: []tool.Iterator{{Program: "settle", Map: "queued"}}},
		Columns:     []string{"time", "pid", "comm", "api", "tracee_pid", "tracee_comm", "events", "name"},
		BufferBytes: 4 << 20,
	}, nil
}
