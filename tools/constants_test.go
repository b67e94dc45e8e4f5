package tools_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/compile"
	"github.com/corescope/corescope/internal/culprit"
	"github.com/corescope/corescope/internal/database"
	"github.com/corescope/corescope/internal/language"
	"github.com/corescope/corescope/internal/layout"
	"github.com/corescope/corescope/internal/usdt"
	"github.com/corescope/corescope/internal/value"
	"github.com/corescope/corescope/tools"
)

// fileOp returns the operation of a name.
func fileOp(t *testing.T, name string) uint64 {
	t.Helper()
	op, ok := value.ParseFileOp(name)
	if !ok {
		t.Fatalf("operation %s is unknown", name)
	}
	return uint64(op)
}

// languages returns the values of enum language.
func languages() map[string]uint64 {
	all := map[string]uint64{}
	for n := range uint64(9) {
		all["LANGUAGE_"+strings.ToUpper(language.Name(uint32(n)))] = n
	}
	return all
}

// TestConstants compares enums of shared headers with the constants of Go, in each object that has
// them.
func TestConstants(t *testing.T) {
	enums := map[string]map[string]uint64{
		"language":     languages(),
		"fetch_result": {"FETCH_UNWANTED": compile.Unwanted, "FETCH_WANTED": compile.Wanted, "FETCH_UNREAD": compile.Unread},
		"usdt_kind":    {"USDT_CONSTANT": uint64(usdt.Constant), "USDT_REGISTER": uint64(usdt.Register), "USDT_MEMORY": uint64(usdt.Memory)},
		"syscall_abi":  {"SYSCALL_NATIVE": uint64(value.ABINative), "SYSCALL_COMPAT": uint64(value.ABICompat), "SYSCALL_X32": uint64(value.ABIX32)},
		"io_data": {
			"IO_DATA_NONE": blockio.DataNone, "IO_DATA_UNKNOWN": blockio.DataUnknown,
			"IO_DATA_FILE": blockio.DataFile, "IO_DATA_METADATA": blockio.DataMetadata, "IO_DATA_JOURNAL": blockio.DataJournal,
			"IO_DATA_DEVICE": blockio.DataDevice, "IO_DATA_SEVERAL": blockio.DataSeveral,
		},
		"database": {"DATABASE_POSTGRES": uint64(database.Postgres), "DATABASE_MYSQL": uint64(database.MySQL)},
		"query_command": {
			"QUERY_SIMPLE": uint64(database.Query), "QUERY_PREPARE": uint64(database.Prepare), "QUERY_EXECUTE": uint64(database.Execute),
		},
		"query_outcome": {
			"OUTCOME_UNKNOWN": uint64(database.Unknown), "OUTCOME_SUCCESS": uint64(database.Success), "OUTCOME_FAILURE": uint64(database.Failure),
		},
		"fs_op": {
			"FS_OP_READ": fileOp(t, "read"), "FS_OP_WRITE": fileOp(t, "write"), "FS_OP_OPEN": fileOp(t, "open"),
			"FS_OP_FSYNC": fileOp(t, "fsync"), "FS_OP_GETATTR": fileOp(t, "getattr"),
		},
	}
	found := map[string]bool{}
	for _, tl := range tools.All() {
		if tl.NoPrograms {
			continue
		}
		spec, err := tl.Object()
		if err != nil {
			t.Fatal(err)
		}
		for enum, values := range enums {
			err := layout.CheckEnum(spec.Types, enum, values)
			var e *btf.Enum
			if errors.Is(err, btf.ErrNotFound) && spec.Types.TypeByName(enum, &e) != nil {
				continue // the object does not have this enum
			}
			if found[enum] = true; err != nil {
				t.Errorf("%s: %v", tl.Name, err)
			}
		}
	}
	for enum := range enums {
		if !found[enum] {
			t.Errorf("no object has enum %s", enum)
		}
	}
}

// TestTail compares what follows an event of a block I/O tool with its type in Go.
func TestTail(t *testing.T) {
	spec, err := loadObject("biosnoop/bpf_x86_bpfel.o.gz")
	if err != nil {
		t.Fatal(err)
	}
	var tail *btf.Struct
	if err := spec.Types.TypeByName("io_tail", &tail); err != nil {
		t.Fatal(err)
	}
	if err := layout.Check(tail, reflect.TypeFor[blockio.Tail]()); err != nil {
		t.Error(err)
	}
}

// TestDirection compares the names of value.Direction with enum direction of conn.bpf.h.
func TestDirection(t *testing.T) {
	spec, err := loadObject("tcplife/bpf_x86_bpfel.o.gz")
	if err != nil {
		t.Fatal(err)
	}
	for member, want := range map[string]string{"DIRECTION_ACTIVE": "active", "DIRECTION_PASSIVE": "passive", "DIRECTION_UNKNOWN": ""} {
		n, err := layout.EnumValue(spec.Types, "direction", member)
		if err != nil {
			t.Fatal(err)
		}
		if d := value.Direction(n); d.Any() != want {
			t.Errorf("%s is %v in Go, want %q", member, d.Any(), want)
		}
	}
}

// TestCulpritKinds compares the names of culprit.Kind with enum culprit_kind of culprit.bpf.h.
func TestCulpritKinds(t *testing.T) {
	for _, name := range []string{"runqlat", "runqslower"} {
		spec, err := loadObject(name + "/bpf_x86_bpfel.o.gz")
		if err != nil {
			t.Fatal(err)
		}
		for i, kind := range culprit.Kinds() {
			n, err := layout.EnumValue(spec.Types, "culprit_kind", "CULPRIT_"+strings.ToUpper(kind))
			if err != nil || n != uint64(i+1) || culprit.Kind(n).String() != kind {
				t.Errorf("%s: %s is %d, want %d (%v)", name, kind, n, i+1, err)
			}
		}
	}
}
