package biolatency

import (
	"strings"

	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/tool"
)

// stages are the names of enum stage.
var stages = [...]string{bpfStageSTAGE_QUEUE: "queue", bpfStageSTAGE_DEVICE: "device", bpfStageSTAGE_TOTAL: "total"}

// operations contains the names of enum block_op, alone and as a suffix of flags.
var operations = [...]struct{ name, inFlags string }{
	bpfBlockOpBLOCK_OP_READ:           {"read", "Read"},
	bpfBlockOpBLOCK_OP_WRITE:          {"write", "Write"},
	bpfBlockOpBLOCK_OP_FLUSH:          {"flush", "Flush"},
	bpfBlockOpBLOCK_OP_DISCARD:        {"discard", "Discard"},
	bpfBlockOpBLOCK_OP_SECURE_ERASE:   {"secure_erase", "SecureErase"},
	bpfBlockOpBLOCK_OP_WRITE_ZEROES:   {"write_zeroes", "WriteZeroes"},
	bpfBlockOpBLOCK_OP_WRITE_SAME:     {"write_same", "WriteSame"},
	bpfBlockOpBLOCK_OP_ZONE_APPEND:    {"zone_append", "ZoneAppend"},
	bpfBlockOpBLOCK_OP_ZONE_OPEN:      {"zone_open", "ZoneOpen"},
	bpfBlockOpBLOCK_OP_ZONE_CLOSE:     {"zone_close", "ZoneClose"},
	bpfBlockOpBLOCK_OP_ZONE_FINISH:    {"zone_finish", "ZoneFinish"},
	bpfBlockOpBLOCK_OP_ZONE_RESET:     {"zone_reset", "ZoneReset"},
	bpfBlockOpBLOCK_OP_ZONE_RESET_ALL: {"zone_reset_all", "ZoneResetAll"},
	bpfBlockOpBLOCK_OP_DRV_IN:         {"driver_in", "DrvIn"},
	bpfBlockOpBLOCK_OP_DRV_OUT:        {"driver_out", "DrvOut"},
	bpfBlockOpBLOCK_OP_SCSI_IN:        {"scsi_in", "SCSIIn"},
	bpfBlockOpBLOCK_OP_SCSI_OUT:       {"scsi_out", "SCSIOut"},
	bpfBlockOpBLOCK_OP_OTHER:          {"unknown", "Unknown"},
}

// flagNames are the names of the bits of enum block_flag.
var flagNames = [...]string{
	bpfBlockFlagBLOCK_FLAG_SYNC:       "Sync",
	bpfBlockFlagBLOCK_FLAG_META:       "Metadata",
	bpfBlockFlagBLOCK_FLAG_PRIO:       "Priority",
	bpfBlockFlagBLOCK_FLAG_NOMERGE:    "NoMerge",
	bpfBlockFlagBLOCK_FLAG_IDLE:       "Idle",
	bpfBlockFlagBLOCK_FLAG_INTEGRITY:  "Integrity",
	bpfBlockFlagBLOCK_FLAG_FUA:        "FUA",
	bpfBlockFlagBLOCK_FLAG_PREFLUSH:   "PreFlush",
	bpfBlockFlagBLOCK_FLAG_RAHEAD:     "ReadAhead",
	bpfBlockFlagBLOCK_FLAG_BACKGROUND: "Background",
	bpfBlockFlagBLOCK_FLAG_NOWAIT:     "NoWait",
}

// label converts a key to a label. Histograms with equal labels are added.
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

// at returns element n, or the last one if n is out of range.
func at[T any](all []T, n uint8) T { return all[min(int(n), len(all)-1)] }

// flagsName returns the text of libbpf-tools: flags from the highest bit to the lowest, then the
// operation.
func flagsName(flags uint16, op uint8) string {
	var b strings.Builder
	for i := len(flagNames) - 1; i >= 0; i-- {
		if flags>>i&1 != 0 {
			b.WriteString(flagNames[i] + "-")
		}
	}
	return b.String() + at(operations[:], op).inFlags
}
