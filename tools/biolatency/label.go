package biolatency

import (
	"strings"

	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/tool"
)

// stages are the names of enum stage.
var stages = [...]string{"", "queue", "device", "total"}

// operations are the names of enum block_op, by themselves and behind flags.
var operations = [...]struct{ name, inFlags string }{
	{"read", "Read"}, {"write", "Write"}, {"flush", "Flush"}, {"discard", "Discard"},
	{"secure_erase", "SecureErase"}, {"write_zeroes", "WriteZeroes"}, {"write_same", "WriteSame"},
	{"zone_append", "ZoneAppend"}, {"zone_open", "ZoneOpen"}, {"zone_close", "ZoneClose"},
	{"zone_finish", "ZoneFinish"}, {"zone_reset", "ZoneReset"}, {"zone_reset_all", "ZoneResetAll"},
	{"driver_in", "DrvIn"}, {"driver_out", "DrvOut"}, {"scsi_in", "SCSIIn"}, {"scsi_out", "SCSIOut"},
	{"unknown", "Unknown"},
}

// flagNames are the names of the bits that block_flags gives.
var flagNames = [...]string{
	"Sync", "Metadata", "Priority", "NoMerge", "Idle", "Integrity", "FUA", "PreFlush", "ReadAhead",
	"Background", "NoWait",
}

// label names what the key tells apart; histograms of equal labels are added up.
func (o *options) label(k histKey, env *tool.Env) label {
	l := label{Stage: at(stages[:], k.Stage)}
	if o.Disks {
		l.Disk = blockio.DiskName(k.Dev, env)
	}
	if o.Partitions {
		l.Partition = blockio.DiskName(k.Part, env)
	}
	if o.Flags {
		l.Flags = flagsName(k.Flags, k.Op)
	}
	if o.Operations {
		l.Operation = at(operations[:], k.Op).name
	}
	l.Cgroup, l.Container = o.Owner(k.CgroupID, env)
	return l
}

// at is the element, or the last one for what there is no name for.
func at[T any](all []T, n uint8) T { return all[min(int(n), len(all)-1)] }

// flagsName is libbpf-tools' text: the flags from the highest down, then the operation.
func flagsName(flags uint16, op uint8) string {
	var b strings.Builder
	for i := len(flagNames) - 1; i >= 0; i-- {
		if flags>>i&1 != 0 {
			b.WriteString(flagNames[i] + "-")
		}
	}
	return b.String() + at(operations[:], op).inFlags
}
