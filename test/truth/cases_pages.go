package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pageCases compare tools that count pages of files, and the time of block requests.
func pageCases() []comparison {
	return []comparison{
		{"cachetop", "cat of 500 files", "mincore(2)", []string{"cat"}, cachetop},
		{"writeback", "dd and sync on a loop device", "size of the file", []string{"dd", "losetup", "mkfs.ext4"}, writeback},
		{"biolatpcts", fioProgram, "/proc/diskstats", []string{"fio"}, biolatpctsTime},
		{"biolatency-kp", fioProgram, "fio's own log", []string{"fio"}, biolatencyQueued},
		{"resettrace", "three probes in uprobe_events", "uprobe_events", nil, resettrace},
	}
}

// cachetop compares misses with the pages that become resident: 500 files of one page each.
func cachetop(ctx context.Context, m *machine) ([]figure, error) {
	dir := m.path("pages")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	var paths []string
	for i := range 500 {
		path := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(path, []byte("text"), 0o644); err != nil {
			return nil, fmt.Errorf("write file: %w", err)
		}
		paths = append(paths, path)
	}
	unix.Sync()
	before, err := resident(paths, true)
	if err != nil {
		return nil, err
	}
	out, err := m.observe(ctx, func() error {
		_, err := output(ctx, "cat", paths...)
		return err
	}, "cachetop", "--comm", "cat", "3600")
	if err != nil {
		return nil, err
	}
	after, err := resident(paths, false)
	if err != nil {
		return nil, err
	}
	return []figure{{"misses of cat", out.sum("misses") + out.lost(), after - before, 25, "5 %: pages of cat itself, and those of other tasks with this name"}}, nil
}

// resident counts the files whose first page is in the page cache, after it has removed the pages
// from there if drop is true.
func resident(paths []string, drop bool) (n float64, err error) {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return 0, fmt.Errorf("open file: %w", err)
		}
		defer f.Close()
		if drop {
			if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
				return 0, fmt.Errorf("remove pages of %s: %w", path, err)
			}
		}
		page, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return 0, fmt.Errorf("map %s: %w", path, err)
		}
		var state [1]byte
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&page[0])), uintptr(len(page)), uintptr(unsafe.Pointer(&state[0])))
		_ = unix.Munmap(page)
		if errno != 0 {
			return 0, fmt.Errorf("read resident pages of %s: %w", path, errno)
		}
		n += float64(state[0] & 1)
	}
	return n, nil
}

// writeback compares the pages of a file on a disk of its own.
func writeback(ctx context.Context, m *machine) ([]figure, error) {
	const size = 16 << 20
	image, mount := m.path("image"), m.path("mount")
	if err := os.MkdirAll(mount, 0o755); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := os.WriteFile(image, nil, 0o644); err != nil {
		return nil, fmt.Errorf("create image: %w", err)
	}
	if err := os.Truncate(image, 4*size); err != nil {
		return nil, fmt.Errorf("create image: %w", err)
	}
	if _, err := output(ctx, "mkfs.ext4", "-q", "-F", image); err != nil {
		return nil, err
	}
	device, err := output(ctx, "losetup", "--find", "--show", image)
	if err != nil {
		return nil, err
	}
	device = strings.TrimSpace(device)
	defer output(ctx, "losetup", "--detach", device) //nolint:errcheck // nothing depends on it
	if err := unix.Mount(device, mount, "ext4", 0, ""); err != nil {
		return nil, fmt.Errorf("mount %s: %w", device, err)
	}
	defer unix.Unmount(mount, 0) //nolint:errcheck // nothing depends on it
	unix.Sync()
	number, err := os.ReadFile("/sys/block/" + filepath.Base(device) + "/dev")
	if err != nil {
		return nil, fmt.Errorf("read device number: %w", err)
	}
	out, err := m.observe(ctx, func() error {
		_, err := output(ctx, "dd", "if=/dev/zero", "of="+mount+"/file", "bs=64k", fmt.Sprint("count=", size>>16), "status=none")
		unix.Sync()
		return err
	}, "writeback")
	if err != nil {
		return nil, err
	}
	out = out.where("device", strings.TrimSpace(string(number)))
	pages := size / float64(os.Getpagesize())
	return []figure{{"pages written to the device", out.sum("pages") + out.lost(), pages, pages / 100, "1 %: metadata"}}, nil
}

// biolatpctsTime compares the sum of the times, from the allocation of a request to its end, which
// the kernel adds up too.
func biolatpctsTime(ctx context.Context, m *machine) ([]figure, error) {
	disk, err := m.disk()
	if err != nil {
		return nil, err
	}
	if _, err := m.fio(ctx, "--create_only=1"); err != nil {
		return nil, err
	}
	unix.Sync()
	var before, after float64
	out, err := m.observe(ctx, func() (err error) {
		if before, err = busy("/sys/class/block/" + disk + "/stat"); err != nil {
			return err
		}
		if _, err = m.fio(ctx); err != nil {
			return err
		}
		after, err = busy("/sys/class/block/" + disk + "/stat")
		return err
	}, "biolatpcts", "-i", "3600", "--which", "after-rq-alloc", disk)
	if err != nil {
		return nil, err
	}
	want := after - before
	return []figure{{"time of all requests in ms", out.sum("sum") / 1e3, want, want/20 + 20,
		"5 % and 20 ms: requests of other processes between the readings, or completed in an interrupt of a process that this guest hides from BPF"}}, nil
}

// disk returns the name of the disk or partition of the scratch directory.
func (m *machine) disk() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(m.scratch, &st); err != nil {
		return "", fmt.Errorf("stat %s: %w", m.scratch, err)
	}
	link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return "", fmt.Errorf("%w: find disk: %w", errMissing, err)
	}
	return filepath.Base(link), nil
}

// busy returns the time of all reads, writes, discards and flushes of a disk in ms.
func busy(stat string) (float64, error) {
	text, err := os.ReadFile(stat)
	if err != nil {
		return 0, fmt.Errorf("read statistics of the disk: %w", err)
	}
	f := strings.Fields(string(text))
	sum := 0.0
	for _, i := range []int{3, 7, 14, 16} {
		if i < len(f) {
			n, _ := strconv.ParseFloat(f[i], 64)
			sum += n
		}
	}
	return sum, nil
}

func biolatencyQueued(ctx context.Context, m *machine) ([]figure, error) {
	out, fio, _, err := m.observeFio(ctx, "biolatency-kp", "--comm", "fio")
	if err != nil {
		return nil, err
	}
	return []figure{{"requests of fio", out.sum("count") + out.lost(), fio.requests(), hidden(), hiddenWhy}}, nil
}

// resettrace compares the probes that it would remove with those in the file.
func resettrace(ctx context.Context, m *machine) ([]figure, error) {
	const path = "/sys/kernel/tracing/uprobe_events"
	add := func(lines string) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return fmt.Errorf("%w: %w", errMissing, err)
		}
		defer f.Close()
		_, err = f.WriteString(lines)
		return err
	}
	for i := range 3 {
		if err := add(fmt.Sprintf("p:truth/probe%d %s:%#x\n", i, m.path("corescope"), 0x1000+16*i)); err != nil {
			return nil, err
		}
		defer add(fmt.Sprintf("-:truth/probe%d\n", i)) //nolint:errcheck // the last comparison
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read probes: %w", err)
	}
	out, err := m.observe(ctx, nil, "resettrace", "--dry-run", "--force", "uprobe_events")
	if err != nil {
		return nil, err
	}
	return []figure{{"probes", float64(len(out.rows)), float64(strings.Count(string(text), "\n")), 0, ""}}, nil
}
