// Command kernels runs the live tests of the tools on kernels of Debian, in virtual machines: with
// each attach type of each hook that a kernel supports, through ring buffers and perf buffers. It
// prints the results and writes docs/compatibility.md. It runs in the root of the tree, by
// `make test-kernels`.
//
//	KERNELS="6.1 7.2" TOOLS=tcplife make test-kernels
//
// runs a part, and updates this part of the document; results of all kernels are not replaced by
// results of some. SHORT=1 runs only the default attach types, with go test -short, and writes no
// document. JOBS is the number of machines that run at a time, by default the number of CPUs: each
// uses one. Downloads are kept in the user's cache. corescope/machines/KERNEL there has the console
// of each machine and the results of each tool, which a run that is stopped keeps too. Test suites
// that do not belong to a tool run only if TOOLS names them. KERNELS=inject is a kernel that is built
// from Debian's sources, with options that no other kernel has (inject.config): its results are not
// in the document.
//
// A machine has two CPUs, or CPUS. With CLOCK=instructions its clock counts instructions, one
// nanosecond each, so that times in the machine do not depend on the host.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test-kernels:", err)
	}
	os.Exit(exitCode(err))
}

// errUnavailable is returned if the emulator or a kernel is not available: this is not Debian, or
// there is no network and the cache is incomplete.
var errUnavailable = errors.New("not available on this machine")

// exitCode returns 3 for errUnavailable.
func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUnavailable):
		return 3
	}
	return 1
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func run(ctx context.Context) error {
	kernels, all, isWhole, err := chosen()
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	commit, err := commit(ctx)
	if err != nil {
		return err
	}
	h := &runner{filepath.Join(cache, "corescope", "machines"), all, commit, map[string]string{}}
	unlock, err := h.lock()
	if err != nil {
		return err
	}
	defer unlock()
	// Build everything first, so that all machines run the same sources.
	for _, k := range kernels {
		if err := h.prepare(ctx, k.arch); err != nil {
			return err
		}
	}
	reports, err := h.testAll(ctx, kernels)
	if err != nil {
		return err
	}
	if !isShort() && slices.ContainsFunc(all, isTool) {
		if err := h.writeDoc(); err != nil {
			return err
		}
	}
	return conclude(reports, all, isWhole)
}

// runner builds and runs the machines.
type runner struct {
	dir     string
	tools   []*tool.Tool
	commit  string
	busybox map[string]string // by architecture, once all of it is built
}

// lock waits until no other run uses the machines.
func (h *runner) lock() (unlock func(), err error) {
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(h.dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock machines: %w", err)
	}
	return func() { f.Close() }, nil
}

// testAll runs several machines at a time. The reports are in the order of the kernels.
func (h *runner) testAll(ctx context.Context, kernels []kernel) ([]*report, error) {
	jobs, err := jobs()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	reports := make([]*report, len(kernels))
	next := make(chan int)
	var done sync.WaitGroup
	for range jobs {
		done.Go(func() {
			for i := range next {
				var err error
				if reports[i], err = h.test(ctx, kernels[i]); err != nil {
					cancel(fmt.Errorf("kernel %s: %w", kernels[i].name, err))
				}
			}
		})
	}
	for i := range kernels {
		next <- i
	}
	close(next)
	done.Wait()
	return reports, context.Cause(ctx)
}

// jobs returns the number of machines that run at a time.
func jobs() (int, error) {
	text := os.Getenv("JOBS")
	if text == "" {
		return runtime.NumCPU(), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("JOBS: %q is not a positive number of machines", text)
	}
	return n, nil
}

func (h *runner) test(ctx context.Context, k kernel) (*report, error) {
	img, err := fetchKernel(ctx, k)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(h.dir, k.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	initrd, disk := filepath.Join(dir, "initrd"), filepath.Join(dir, "disk")
	os.Remove(initrd) // if the cache is a copy, the file can be a hard link to the original
	defer os.Remove(initrd)
	defer os.Remove(disk)
	programs := filepath.Join(h.dir, k.arch)
	if err := makeInitrd(initrd, programs, h.busybox[k.arch], img, k, h.tools); err != nil {
		return nil, err
	}
	if err := makeDisk(ctx, disk, filepath.Join(dir, "files"), programs, h.tools); err != nil {
		return nil, err
	}
	r := boot(ctx, k, h.commit, img.vmlinuz, dir)
	isStopped := errors.Is(r.err, context.Canceled)
	if r.err != nil && !isStopped {
		progress("%s: the machine failed", k.name)
	}
	switch {
	case isStopped:
		return nil, errors.Join(r.err, h.keepFinished(r))
	case isShort():
		return r, nil
	}
	return r, h.keep(r)
}

// diskBytes is the space for the output of tests with many events.
const diskBytes = 1 << 30

// makeDisk makes a disk that contains the programs that a machine runs, in the folder test. It
// collects them in the folder files.
func makeDisk(ctx context.Context, path, files, programs string, all []*tool.Tool) error {
	if err := errors.Join(os.RemoveAll(path), os.RemoveAll(files), os.MkdirAll(filepath.Join(files, "test"), 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(files)
	names := []string{"corescope", "test2json"}
	for _, t := range all {
		names = append(names, t.Name+".test")
	}
	size := int64(diskBytes)
	for _, name := range names {
		from := filepath.Join(programs, name)
		info, err := os.Stat(from)
		if err != nil {
			return err
		}
		if err := os.Link(from, filepath.Join(files, "test", name)); err != nil {
			return err
		}
		size += info.Size() * 5 / 4 // with what the file system needs
	}
	out, err := exec.CommandContext(ctx, mke2fs.command, "-q", "-t", "ext4", "-d", files, path, fmt.Sprintf("%dK", size>>10)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make disk: %w: %s", err, out)
	}
	return nil
}

// prepare downloads and builds the files that all machines of an architecture share, once.
func (h *runner) prepare(ctx context.Context, arch string) error {
	if h.busybox[arch] != "" {
		return nil
	}
	for _, p := range []program{emulators[arch], mke2fs} {
		if err := p.install(ctx); err != nil {
			return err
		}
	}
	dir := filepath.Join(h.dir, arch)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := build(ctx, arch, dir, h.tools); err != nil {
		return err
	}
	busybox, err := fetchBusybox(ctx, arch)
	h.busybox[arch] = busybox
	return err
}
