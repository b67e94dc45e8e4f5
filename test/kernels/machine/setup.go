package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/test/kernels/plan"
)

func setUp(p *plan.Plan) error {
	if err := mountAll(p.Hybrid); err != nil {
		return err
	}
	if out, err := exec.Command("/bin/busybox", "--install", "-s", "/bin").CombinedOutput(); err != nil {
		return fmt.Errorf("install busybox: %w: %s", err, out)
	}
	os.Setenv("PATH", "/bin")
	os.Setenv("HOME", "/root")
	os.Setenv("CORESCOPE", "/test/corescope")
	os.Setenv("TMPDIR", disk)
	if out, err := exec.Command("/bin/ifconfig", "lo", "127.0.0.1", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("set loopback up: %w: %s", err, out)
	}
	if err := unix.Sethostname([]byte("machine")); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	// udev creates this link on other systems.
	if err := os.Symlink("/proc/self/fd", "/dev/fd"); err != nil {
		return fmt.Errorf("make /dev/fd: %w", err)
	}
	if err := load(p.Modules); err != nil {
		return err
	}
	return mountDisk()
}

// disk is the mount point of the machine's disk. Temporary files are on it, because tmpfs supports
// neither O_DIRECT nor block requests.
const disk = "/disk"

func mountDisk() error {
	if err := os.Mkdir(disk, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := unix.Mount("/dev/vda", disk, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount disk: %w", err)
	}
	// The programs are on the disk, see makeDisk.
	if err := os.Symlink(disk+"/test", "/test"); err != nil {
		return fmt.Errorf("make /test: %w", err)
	}
	// /var/tmp must not be in memory either.
	if err := os.Mkdir("/var", 0o755); err != nil {
		return fmt.Errorf("make /var: %w", err)
	}
	if err := os.Symlink(disk, "/var/tmp"); err != nil {
		return fmt.Errorf("make /var/tmp: %w", err)
	}
	return nil
}

type mount struct{ kind, at, options string }

var mounts = []mount{
	{"proc", "/proc", ""},
	{"sysfs", "/sys", ""},
	{"devtmpfs", "/dev", ""},
	{"devpts", "/dev/pts", ""},
	{"tmpfs", "/dev/shm", ""},
	{"tmpfs", "/tmp", ""},
	{"tmpfs", "/run", ""},
	{"debugfs", "/sys/kernel/debug", ""},
	{"tracefs", "/sys/kernel/tracing", ""},
	{"bpf", "/sys/fs/bpf", ""},
}

// unified and hybrid are the cgroup mounts of systemd.
var (
	unified = []mount{{"cgroup2", "/sys/fs/cgroup", ""}}
	hybrid  = []mount{
		{"tmpfs", "/sys/fs/cgroup", ""},
		{"cgroup2", "/sys/fs/cgroup/unified", ""},
		{"cgroup", "/sys/fs/cgroup/memory", "memory"},
		{"cgroup", "/sys/fs/cgroup/blkio", "blkio"},
	}
)

func mountAll(isHybrid bool) error {
	cgroups := unified
	if isHybrid {
		cgroups = hybrid
	}
	for _, m := range slices.Concat(mounts, cgroups) {
		// sysfs has some of the directories already.
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return fmt.Errorf("make mount point: %w", err)
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}

// load loads modules in order. Modules that are loaded already remain, and those for a processor or
// device that the machine does not have are omitted.
func load(modules []plan.Module) error {
	for _, m := range modules {
		switch err := loadFile("/modules/"+m.File, m.Params); err {
		case nil, unix.EEXIST, unix.ENODEV, unix.EOPNOTSUPP:
		default:
			return fmt.Errorf("load module %s %s: %w", m.File, m.Params, err)
		}
	}
	return nil
}

func loadFile(path, params string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), params, 0)
}

// bootParam returns the value of NAME=VALUE on the kernel's command line.
func bootParam(name string) (string, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return "", err
	}
	for word := range strings.FieldsSeq(string(line)) {
		if val, ok := strings.CutPrefix(word, name+"="); ok {
			return val, nil
		}
	}
	return "", fmt.Errorf("no %s= on the kernel's command line", name)
}
