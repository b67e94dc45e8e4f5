// Command corescope is a multi-call binary with eBPF tools to observe a Linux system. The tool is
// selected by the name of the command or by the first argument.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/corescope/corescope/internal/command"
	"github.com/corescope/corescope/tools"
)

// version is set by the linker.
var version = "devel"

func main() { os.Exit(run()) }

func run() int {
	c := command.Command{Tools: tools.All(), Version: version, Objects: tools.Objects, Out: os.Stdout, Err: os.Stderr}
	run := c.Begin(os.Args)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A second signal kills the process, for example if the output blocks. It must arrive at
	// least a second later, because a parent process may relay the first signal again.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	// Writing to a closed pipe returns an error instead, so that the run ends cleanly.
	signal.Ignore(syscall.SIGPIPE)
	return run(ctx)
}
