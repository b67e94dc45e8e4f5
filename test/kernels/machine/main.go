// Command machine is the init process of a virtual machine: it sets up the system, runs the plan in
// the initrd, sends the result of each check to the host, and powers off.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/test/kernels/plan"
)

func main() {
	if os.Getpid() == 1 {
		reapUntilDone()
		unix.Sync()
		unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
	if err := run(); err != nil {
		fmt.Println("machine:", err)
		os.Exit(1)
	}
}

// reapUntilDone starts this program again for the work, and reaps all processes until it has ended.
func reapUntilDone() {
	work := exec.Command("/init")
	work.Stdin, work.Stdout, work.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := work.Start(); err != nil {
		fmt.Println("machine:", err)
		return
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if pid == work.Process.Pid || err != nil && err != unix.EINTR {
			return
		}
	}
}

func run() error {
	var p plan.Plan
	text, err := os.ReadFile("/plan.json")
	if err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	if err := setUp(&p); err != nil {
		return err
	}
	h, err := openHost()
	if err != nil {
		return err
	}
	return h.run(&p)
}
