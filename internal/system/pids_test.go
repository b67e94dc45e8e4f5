package system

import (
	"errors"
	"testing"
)

func TestPIDMax(t *testing.T) {
	const own = "-> " + initialPIDNamespace
	for name, test := range map[string]struct {
		files map[string]string
		want  uint32
	}{
		"set":             {map[string]string{"proc/self/ns/pid": own, "proc/sys/kernel/pid_max": "32768\n"}, 32768},
		"maximum":         {map[string]string{"proc/self/ns/pid": own, "proc/sys/kernel/pid_max": "4194304\n"}, 4194304},
		"other namespace": {map[string]string{"proc/self/ns/pid": "-> pid:[4026532177]", "proc/sys/kernel/pid_max": "1000\n"}, pidLimit},
		"no file":         {map[string]string{"proc/self/ns/pid": own}, pidLimit},
		"invalid":         {map[string]string{"proc/self/ns/pid": own, "proc/sys/kernel/pid_max": "many\n"}, pidLimit},
		"zero":            {map[string]string{"proc/self/ns/pid": own, "proc/sys/kernel/pid_max": "0\n"}, pidLimit},
		"above maximum":   {map[string]string{"proc/self/ns/pid": own, "proc/sys/kernel/pid_max": "4194305\n"}, pidLimit},
		"no files":        {nil, pidLimit},
	} {
		if got := PIDMax(tree(t, test.files)); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestReadPIDNamespace(t *testing.T) {
	const own, child = "-> " + initialPIDNamespace, "-> pid:[4026532177]"
	for name, test := range map[string]struct {
		link, status string
		want         PIDNamespace
	}{
		"initial":               {own, "Pid:\t7\nNSpid:\t7\n", PIDNamespace{Inode: 4026531836, Initial: true}},
		"child":                 {child, "Pid:\t7\nNSpid:\t7\n", PIDNamespace{Inode: 4026532177}},
		"/proc of parent":       {child, "Pid:\t9\nNSpid:\t9\t7\n", PIDNamespace{Inode: 4026532177, OtherProc: true}},
		"before 4.1":            {own, "Pid:\t7\n", PIDNamespace{Inode: 4026531836, Initial: true}},
		"without CONFIG_PID_NS": {"", "Pid:\t7\n", PIDNamespace{Initial: true}},
	} {
		files := map[string]string{"proc/self/status": test.status}
		if test.link != "" {
			files["proc/self/ns/pid"] = test.link
		}
		if got, err := ReadPIDNamespace(tree(t, files)); err != nil || got != test.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
	}
	got, err := ReadPIDNamespace(tree(t, map[string]string{"proc/1/status": ""}))
	if (got != PIDNamespace{OtherProc: true}) || !errors.Is(err, ErrOtherProc) {
		t.Errorf("/proc without this process: %+v, %v, want %v", got, err, ErrOtherProc)
	}
}

func TestOwnerName(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, test := range []struct {
		owner Owner
		want  string
	}{
		{Owner{}, ""},
		{Owner{ContainerID: id}, id[:12]},
		{Owner{ContainerID: "web"}, "web"},
		{Owner{Container: "db", ContainerID: id}, "db"},
	} {
		if got := test.owner.Name(); got != test.want {
			t.Errorf("%+v: %q, want %q", test.owner, got, test.want)
		}
	}
}
