package mountsnoop

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// kind is the form of an argument.
type kind int

const (
	text kind = iota + 1
	descriptor
	number
	bits
	command
	attributes
)

// arg is an argument of a call. Its text is in the column, if there is one.
type arg struct {
	kind   kind
	column string
	names  []flag
}

// flag is a bit mask and its name.
type flag struct {
	bits uint64
	name string
}

// call is a traced system call.
type call struct {
	op   string // in the column OP of libbpf-tools
	args []arg
}

// Bits of a call's kind: see mountsnoop.bpf.c.
const (
	hasAttr = 1 << 5
	isCall  = 1 << 6
)

// bits returns the kind of the call for the BPF program.
func (c *call) bits() uint8 {
	n := uint8(isCall)
	for i, a := range c.args {
		switch a.kind {
		case text:
			n |= 1 << i
		case attributes:
			n |= hasAttr
		}
	}
	return n
}

// calls returns the traced system calls by name.
func calls() map[string]*call {
	dfd, size := arg{kind: descriptor}, arg{kind: number}
	source, target := arg{kind: text, column: "source"}, arg{kind: text, column: "target"}
	fs, fd := arg{kind: text, column: "fs"}, arg{kind: descriptor, column: "fd"}
	flags := func(names []flag) arg { return arg{bits, "flags", names} }
	attr := arg{kind: attributes}
	return map[string]*call{
		"mount":      {"MOUNT", []arg{source, target, fs, flags(mountFlags), {kind: text, column: "data"}}},
		"umount":     {"UMOUNT", []arg{target}},
		"umount2":    {"UMOUNT", []arg{target, flags(umountFlags)}},
		"pivot_root": {"PIVOT_ROOT", []arg{source, target}},
		"fsopen":     {"FSOPEN", []arg{fs, flags([]flag{{unix.FSOPEN_CLOEXEC, "FSOPEN_CLOEXEC"}})}},
		"fsconfig":   {"FSCONFIG", []arg{fd, {kind: command, column: "command"}, {kind: text, column: "key"}, {kind: text, column: "value"}, dfd}},
		"fsmount":    {"FSMOUNT", []arg{fd, flags([]flag{{unix.FSMOUNT_CLOEXEC, "FSMOUNT_CLOEXEC"}}), {bits, "attributes", mountAttributes}}},
		"fspick":     {"FSPICK", []arg{dfd, target, flags(pickFlags)}},
		"move_mount": {"MOVE_MOUNT", []arg{dfd, source, dfd, target, flags(moveFlags)}},
		"open_tree":  {"OPEN_TREE", []arg{dfd, source, flags(treeFlags)}},

		"mount_setattr":  {"MOUNT_SETATTR", []arg{dfd, target, flags(treeFlags), attr, size}},
		"open_tree_attr": {"OPEN_TREE_ATTR", []arg{dfd, source, flags(treeFlags), attr, size}},
	}
}

// appendNames appends the names of the flags that are set, each followed by a NUL byte, and the
// bits without a name as a number.
func appendNames(b []byte, n uint64, names []flag) []byte {
	for _, f := range names {
		if n&f.bits == f.bits {
			b = append(append(b, f.name...), 0)
			n &^= f.bits
		}
	}
	if n != 0 {
		b = append(strconv.AppendUint(append(b, "0x"...), n, 16), 0)
	}
	return b
}

// commands are the values of enum fsconfig_command.
var commands = []string{
	"FSCONFIG_SET_FLAG", "FSCONFIG_SET_STRING", "FSCONFIG_SET_BINARY", "FSCONFIG_SET_PATH", "FSCONFIG_SET_PATH_EMPTY",
	"FSCONFIG_SET_FD", "FSCONFIG_CMD_CREATE", "FSCONFIG_CMD_RECONFIGURE", "FSCONFIG_CMD_CREATE_EXCL",
}

// setBinary is FSCONFIG_SET_BINARY.
const setBinary = 2

var mountFlags = []flag{
	{0xc0ed0000, "MS_MGC_VAL"}, {unix.MS_RDONLY, "MS_RDONLY"}, {unix.MS_NOSUID, "MS_NOSUID"}, {unix.MS_NODEV, "MS_NODEV"},
	{unix.MS_NOEXEC, "MS_NOEXEC"}, {unix.MS_SYNCHRONOUS, "MS_SYNCHRONOUS"}, {unix.MS_REMOUNT, "MS_REMOUNT"},
	{unix.MS_MANDLOCK, "MS_MANDLOCK"}, {unix.MS_DIRSYNC, "MS_DIRSYNC"}, {unix.MS_NOSYMFOLLOW, "MS_NOSYMFOLLOW"},
	{unix.MS_NOATIME, "MS_NOATIME"}, {unix.MS_NODIRATIME, "MS_NODIRATIME"}, {unix.MS_BIND, "MS_BIND"}, {unix.MS_MOVE, "MS_MOVE"},
	{unix.MS_REC, "MS_REC"}, {unix.MS_SILENT, "MS_SILENT"}, {unix.MS_POSIXACL, "MS_POSIXACL"}, {unix.MS_UNBINDABLE, "MS_UNBINDABLE"},
	{unix.MS_PRIVATE, "MS_PRIVATE"}, {unix.MS_SLAVE, "MS_SLAVE"}, {unix.MS_SHARED, "MS_SHARED"}, {unix.MS_RELATIME, "MS_RELATIME"},
	{unix.MS_KERNMOUNT, "MS_KERNMOUNT"}, {unix.MS_I_VERSION, "MS_I_VERSION"}, {unix.MS_STRICTATIME, "MS_STRICTATIME"},
	{unix.MS_LAZYTIME, "MS_LAZYTIME"},
}

var umountFlags = []flag{
	{unix.MNT_FORCE, "MNT_FORCE"}, {unix.MNT_DETACH, "MNT_DETACH"}, {unix.MNT_EXPIRE, "MNT_EXPIRE"}, {unix.UMOUNT_NOFOLLOW, "UMOUNT_NOFOLLOW"},
}

var mountAttributes = []flag{
	{unix.MOUNT_ATTR__ATIME, "MOUNT_ATTR__ATIME"}, {unix.MOUNT_ATTR_RDONLY, "MOUNT_ATTR_RDONLY"}, {unix.MOUNT_ATTR_NOSUID, "MOUNT_ATTR_NOSUID"},
	{unix.MOUNT_ATTR_NODEV, "MOUNT_ATTR_NODEV"}, {unix.MOUNT_ATTR_NOEXEC, "MOUNT_ATTR_NOEXEC"}, {unix.MOUNT_ATTR_NOATIME, "MOUNT_ATTR_NOATIME"},
	{unix.MOUNT_ATTR_STRICTATIME, "MOUNT_ATTR_STRICTATIME"}, {unix.MOUNT_ATTR_NODIRATIME, "MOUNT_ATTR_NODIRATIME"},
	{unix.MOUNT_ATTR_IDMAP, "MOUNT_ATTR_IDMAP"}, {unix.MOUNT_ATTR_NOSYMFOLLOW, "MOUNT_ATTR_NOSYMFOLLOW"},
}

var pickFlags = []flag{
	{unix.FSPICK_CLOEXEC, "FSPICK_CLOEXEC"}, {unix.FSPICK_SYMLINK_NOFOLLOW, "FSPICK_SYMLINK_NOFOLLOW"},
	{unix.FSPICK_NO_AUTOMOUNT, "FSPICK_NO_AUTOMOUNT"}, {unix.FSPICK_EMPTY_PATH, "FSPICK_EMPTY_PATH"},
}

var moveFlags = []flag{
	{unix.MOVE_MOUNT_F_SYMLINKS, "MOVE_MOUNT_F_SYMLINKS"}, {unix.MOVE_MOUNT_F_AUTOMOUNTS, "MOVE_MOUNT_F_AUTOMOUNTS"},
	{unix.MOVE_MOUNT_F_EMPTY_PATH, "MOVE_MOUNT_F_EMPTY_PATH"}, {unix.MOVE_MOUNT_T_SYMLINKS, "MOVE_MOUNT_T_SYMLINKS"},
	{unix.MOVE_MOUNT_T_AUTOMOUNTS, "MOVE_MOUNT_T_AUTOMOUNTS"}, {unix.MOVE_MOUNT_T_EMPTY_PATH, "MOVE_MOUNT_T_EMPTY_PATH"},
	{unix.MOVE_MOUNT_SET_GROUP, "MOVE_MOUNT_SET_GROUP"}, {0x200, "MOVE_MOUNT_BENEATH"},
}

var treeFlags = []flag{
	{unix.OPEN_TREE_CLONE, "OPEN_TREE_CLONE"}, {unix.OPEN_TREE_CLOEXEC, "OPEN_TREE_CLOEXEC"}, {unix.AT_RECURSIVE, "AT_RECURSIVE"},
	{unix.AT_EMPTY_PATH, "AT_EMPTY_PATH"}, {unix.AT_NO_AUTOMOUNT, "AT_NO_AUTOMOUNT"}, {unix.AT_SYMLINK_NOFOLLOW, "AT_SYMLINK_NOFOLLOW"},
}
