package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/corescope/corescope/test/kernels/plan"
)

// Timeouts for messages of a machine: until it has booted, and between two messages. The second is
// longer than the timeout of the tests.
const (
	bootTimeout = 10 * time.Minute
	idleTimeout = 22 * time.Minute
)

// report has the results of one kernel, from one or several machines.
type report struct {
	kernel  kernel
	commit  string // of corescope
	release string
	boot    time.Duration
	tools   map[string]*result
	err     error // the machine itself failed
}

// result is the result of a tool on a kernel.
type result struct {
	Release, Commit string
	Variants        []plan.Variant `json:"Ways"`
	Checks          []plan.Check
	// Error is the reason if there are no attach types, or if not all of them were tested.
	Error string
	// Lacks is the message of a tool for which the machine has no hardware.
	Lacks string `json:",omitempty"`
}

// resultOf returns the result of the tool, which is empty if the tool was not tested.
func (r *report) resultOf(tool string) *result {
	if found := r.tools[tool]; found != nil {
		return found
	}
	return &result{}
}

// hardware returns the arguments of QEMU. The second serial port is for the results: it writes to
// descriptor 3. KVM is not used, because the matrix must run on machines without it.
//
// Both CPUs run in one thread of the emulator. With a thread per CPU, QEMU 7.2 sometimes keeps
// executing an int3 that the kernel has already replaced. The kernel's handler returns to it for
// ever, and both CPUs hang at a static branch that was just switched.
//
// A clock that counts instructions counts those of all CPUs together.
func hardware(arch, vmlinuz, initrd, disk, console string) []string {
	args := []string{
		"-accel", "tcg,thread=single", "-smp", cmp.Or(os.Getenv("CPUS"), "2"), "-m", "2G",
		"-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", vmlinuz, "-initrd", initrd,
		"-drive", "if=none,id=disk,format=raw,cache=unsafe,file=" + disk, "-device", "virtio-blk-pci,drive=disk",
		"-serial", "file:" + console,
	}
	stamps := tscParam()
	if os.Getenv("CLOCK") == "instructions" {
		args = append(args, "-icount", "shift=0")
		stamps = "tsc_early_khz=1000000 "
	}
	// A CPU that makes no progress for two minutes counts as hanging, even on a busy host.
	const line = "panic=-1 watchdog_thresh=60 softlockup_panic=1 softlockup_all_cpu_backtrace=1 "
	if arch == "arm64" { // the board has one serial port
		return append(args, "-M", "virt", "-cpu", "max,pauth-impdef=on",
			"-chardev", "file,id=results,path=/dev/fd/3", "-device", "pci-serial,chardev=results",
			"-append", line+"console=ttyAMA0 results=/dev/ttyS0")
	}
	// The kernel panics if it counts too few timer interrupts while it boots ("IO-APIC + timer doesn't
	// work!"), which happens on a busy host. Kernels on KVM omit this check by themselves.
	const timer = "no_timer_check "
	return append(args, "-cpu", "max", "-serial", "file:/dev/fd/3",
		"-append", line+stamps+timer+"tsc=reliable console=ttyS0 results=/dev/ttyS1")
}

// boot runs a machine until it powers off. dir has its initrd and its disk.
func boot(ctx context.Context, k kernel, commit, vmlinuz, dir string) *report {
	// A machine ends with the thread that started it (Pdeathsig).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &report{kernel: k, commit: commit, tools: map[string]*result{}}
	console := filepath.Join(dir, "console")
	os.Remove(console) // if the cache is a copy, the file can be a hard link to the original
	args := hardware(k.arch, vmlinuz, filepath.Join(dir, "initrd"), filepath.Join(dir, "disk"), console)
	if err := r.run(ctx, args); err != nil {
		r.err = fmt.Errorf("%w; end of the console (%s):\n%s", err, console, lastLines(console))
	}
	return r
}

func (r *report) run(ctx context.Context, args []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	cmd := exec.CommandContext(ctx, emulators[r.kernel.arch].command, args...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stderr, os.Stderr, []*os.File{out}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	out.Close()
	if err != nil {
		return fmt.Errorf("start machine: %w", err)
	}
	err = r.follow(ctx, in)
	cancel()
	cmd.Wait()
	return err
}

// follow reads the messages of the machine until it ends or sends none for too long.
func (r *report) follow(ctx context.Context, in io.Reader) error {
	messages := make(chan plan.Message)
	broken := make(chan error, 1)
	go func() { broken <- receive(ctx, in, messages) }()
	start := time.Now()
	idle := time.NewTimer(bootTimeout)
	doing := "booting"
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-idle.C:
			return fmt.Errorf("machine hangs while %s: killed", doing)
		case err := <-broken:
			return fmt.Errorf("machine ended while %s: %w", doing, err)
		case m := <-messages:
			idle.Reset(idleTimeout)
			if m.Type == plan.Boot {
				r.boot = time.Since(start)
			}
			if m.Type == plan.End {
				return nil
			}
			doing = r.record(m)
		}
	}
}

// record adds a message to the report, and returns the next activity of the machine.
func (r *report) record(m plan.Message) (doing string) {
	switch m.Type {
	case plan.Boot:
		r.release = m.Release
		progress("%s: %s is up after %.0f s", r.kernel.name, m.Release, r.boot.Seconds())
	case plan.Explained:
		found := &result{Release: r.release, Commit: r.commit, Variants: m.Variants, Error: cmp.Or(m.Error, endedEarly)}
		if lacks := toolNeeds[m.Tool].lacks; lacks != "" && strings.Contains(m.Error, lacks) {
			found.Lacks, found.Error = m.Error, endedEarly
		}
		r.tools[m.Tool] = found
		if m.Error != "" {
			progress("%s: %s: %s", r.kernel.name, m.Tool, m.Error)
		}
	case plan.Start:
		return "testing " + m.Check.String()
	case plan.Done:
		found := r.tools[m.Check.Tool]
		found.Checks = append(found.Checks, *m.Check)
		progress("%s: %s: %s", r.kernel.name, m.Check, verdict(m.Check))
	case plan.Tested:
		if found := r.tools[m.Tool]; found.Error == endedEarly {
			found.Error = ""
		}
	}
	return "preparing the next check"
}

// endedEarly is the error of a tool whose checks have not ended.
const endedEarly = "the machine ended before its checks did"

func receive(ctx context.Context, in io.Reader, messages chan<- plan.Message) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		var m plan.Message
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("read message %q: %w", line, err)
		}
		select {
		case messages <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func lastLines(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

var errFailed = errors.New("checks failed")
