// Command corescope is a toolkit of tools that observe a Linux system by eBPF, in one
// binary. It is called by a tool's name, or with it as the first argument.
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// Who asks again, as the output is stuck, is not made to wait for it. One that comes
	// at once may be the first one again, relayed by a parent.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	// A closed pipe is an error of the write, so that it ends the run in order.
	signal.Ignore(syscall.SIGPIPE)
	c := command.Command{Tools: tools.All(), Version: version, Out: os.Stdout, Err: os.Stderr}
	return c.Run(ctx, os.Args)
}
