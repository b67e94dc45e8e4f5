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

// TestWatchSync has the mappings of a process that has ended told by the time that Sync
// returns, and Sync return after the end of Run too.
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
	var told sync.Map
	ended := make(chan error)
	go func() {
		ended <- w.Run(func(m *Mapped) {
			if m.Path != exe {
				return
			}
			time.Sleep(5 * time.Millisecond) // who does not wait for Sync is too early
			told.Store(m.PID, true)
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
		if _, ok := told.Load(uint32(cmd.Process.Pid)); !ok {
			t.Errorf("nothing was told of %d", cmd.Process.Pid)
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

// TestWatchHotplug takes the ring of a CPU away, as the kernel does when the CPU goes offline,
// and has the kernel send its message that the CPU is online: what is mapped there from then on
// is reported, and a look at all processes is asked for.
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
		t.Skip("this network namespace gets no messages of the kernel")
	}
	w.drop(cpu, func(*Mapped) {}, func() {})
	if w.byCPU[cpu] != nil {
		t.Fatalf("CPU %d still has a ring", cpu)
	}
	var told sync.Map
	missed := make(chan bool, 64)
	ended := make(chan error)
	go func() {
		ended <- w.Run(func(m *Mapped) { told.Store(m.PID, true) }, func() { missed <- true })
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
	if _, ok := told.Load(uint32(pid)); !ok {
		t.Errorf("nothing was told of %d, which ran on CPU %d", pid, cpu)
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// lastCPU is the last one that this process may use.
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

// runOn starts a process on a CPU, waits for its end and returns its pid.
func runOn(t *testing.T, cpu int) int {
	t.Helper()
	pid := make(chan int)
	go func() {
		runtime.LockOSThread() // and ends with the thread, whose CPUs these are
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
