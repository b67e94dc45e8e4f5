package binary

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWatchSync checks that the mappings of an exited process are yielded before Sync returns, and
// that Sync returns after the end of Run.
func TestWatchSync(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	w, err := NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var seen sync.Map
	ended := make(chan error)
	go func() {
		ended <- w.Run(func(m *Mapped) {
			if m.Path != exe {
				return
			}
			time.Sleep(5 * time.Millisecond) // makes a Sync that returns too early fail the test
			seen.Store(m.PID, true)
		}, func() {})
	}()
	for range 10 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
		if _, ok := seen.Load(uint32(cmd.Process.Pid)); !ok {
			t.Errorf("no mapping of process %d before Sync returned", cmd.Process.Pid)
		}
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(); err != nil {
		t.Error(err)
	}
}

// TestWatchHotplug removes the ring of a CPU, as when the CPU goes offline, and makes the kernel
// send the message that the CPU is online. Later mappings on it must be yielded, and missed called.
func TestWatchHotplug(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	cpu := lastCPU(t)
	w, err := NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if w.hotplug.Socket() < 0 {
		t.Skip("cannot receive the kernel's uevents in this network namespace")
	}
	w.drop(cpu, func(*Mapped) {}, func() {})
	if w.byCPU[cpu] != nil {
		t.Fatalf("CPU %d still has a ring", cpu)
	}
	var seen sync.Map
	missed := make(chan bool, 64)
	ended := make(chan error)
	go func() {
		ended <- w.Run(func(m *Mapped) { seen.Store(m.PID, true) }, func() { missed <- true })
	}()
	uevent := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/uevent", cpu)
	if err := os.WriteFile(uevent, []byte("online"), 0); err != nil {
		t.Fatal(err)
	}
	<-missed
	pid := runOn(t, cpu)
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	if _, ok := seen.Load(uint32(pid)); !ok {
		t.Errorf("no mapping of process %d, which ran on CPU %d", pid, cpu)
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// lastCPU returns the last CPU that this process may use.
func lastCPU(t *testing.T) int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	last := 0
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			last = cpu
		}
	}
	return last
}

// runOn runs a process on a CPU until it exits, and returns its PID.
func runOn(t *testing.T, cpu int) int {
	t.Helper()
	pid := make(chan int)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread with this affinity exits with the goroutine
		var set unix.CPUSet
		set.Set(cpu)
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		err := unix.SchedSetaffinity(0, &set)
		if err == nil {
			err = cmd.Run()
		}
		if err != nil {
			t.Error(err)
			pid <- 0
			return
		}
		pid <- cmd.Process.Pid
	}()
	return <-pid
}
