package memleak

import (
	"testing"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestAllocatorOfKernel checks that options for an allocator of processes are refused for the memory
// of the kernel, which has no such allocator.
func TestAllocatorOfKernel(t *testing.T) {
	tooltest.AnyAttachType(t)
	for _, args := range [][]string{
		{"-O", "/proc/self/exe"}, {"-S", "je_"}, {"-O", "libc.so.6", "--percpu"}, {"--pid", "1", "-S", "je_", "--kernel"},
	} {
		tooltest.Fails(t, Tool, args, tool.ExitUsage, "--obj and --symbols-prefix")
	}
	tooltest.Fails(t, Tool, []string{"--pid", "1", "-O", "/no/such/file"}, tool.ExitUsage, "/no/such/file")
}
