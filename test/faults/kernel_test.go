package faults

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

const kernelBTF = "/sys/kernel/btf"

// alone runs the script before the tool, in a private mount namespace.
func (r *run) alone(script string) *run {
	r.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return r.within(script)
}

// hide returns a command that mounts an empty directory over dir.
func hide(dir string) string { return "mount -t tmpfs none " + dir }

// TestNoBTF hides the kernel's BTF. The tool fails and names the ways to provide it, and works if
// BTF is provided in each of them.
func TestNoBTF(t *testing.T) {
	skipShort(t)
	types, err := os.ReadFile(kernelBTF + "/vmlinux")
	if err != nil {
		t.Skipf("this kernel has no BTF to hide: %v", err)
	}
	file := filepath.Join(t.TempDir(), "kernel.btf")
	if err := os.WriteFile(file, types, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Run("none", func(t *testing.T) {
		eachTool(t, representatives(t), func(s *subject) {
			r := s.command().alone(hide(kernelBTF))
			if s.tool.NoPrograms {
				s.works(r)
			} else {
				r.start(s).checkFailure(s, 4, "BTF", "--btf", "CORESCOPE_BTF")
			}
		})
	})
	t.Run("flag", func(t *testing.T) {
		eachTool(t, tools.All(), func(s *subject) { s.worksWithBTF(s.command("--btf", file).alone(hide(kernelBTF))) })
	})
	t.Run("environment", func(t *testing.T) {
		eachTool(t, representatives(t), func(s *subject) {
			r := s.command().alone(hide(kernelBTF))
			r.Env = append(os.Environ(), "CORESCOPE_BTF="+file)
			s.worksWithBTF(r)
		})
	})
}

// worksWithBTF is like works, except that tools that require a BPF iterator, or only have hooks of type
// tp_btf, must fail: these need BTF in the running kernel.
func (s *subject) worksWithBTF(r *run) {
	s.Helper()
	r.start(s)
	if r.isReady(s) {
		done := s.usual()
		r.stop(s).judge(s, done)
	} else {
		r.checkFailure(s, 4, cmp.Or(s.btf, "iterator"))
	}
}

// works runs the tool with the usual job and checks its counts.
func (s *subject) works(r *run) {
	s.Helper()
	r.start(s).await(s)
	done := s.usual()
	r.stop(s).judge(s, done)
}

// TestTracefs makes tracefs unavailable in several ways, also below debugfs, which contains a mount
// point for it.
func TestTracefs(t *testing.T) {
	skipShort(t)
	tooltest.Tracefs(t)
	var mounts []string
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[2] == "tracefs" || f[2] == "debugfs" {
			mounts = append(mounts, f[1])
		}
	}
	slices.Reverse(mounts) // below debugfs first
	const usual = "/sys/kernel/tracing"
	absent, others := "true", "true"
	for _, at := range mounts {
		absent += " && " + hide(at)
		if at != usual {
			others += " && " + hide(at)
		}
	}
	for name, script := range map[string]string{
		"absent":    absent,
		"elsewhere": absent + " && mount -t tmpfs none /mnt && mkdir /mnt/tracing && mount -t tracefs none /mnt/tracing",
		"closed":    others + " && mount -t tmpfs -o mode=0 none " + usual,
	} {
		t.Run(name, func(t *testing.T) {
			eachTool(t, ownStart(t), func(s *subject) {
				r := s.command().alone(script)
				switch {
				case s.tracefs > 0:
					r.start(s).checkFailure(s, s.tracefs, usual)
				case tooltest.NeedsTracefs(s, s.tool):
					r.start(s).checkFailure(s, 4, usual)
				default:
					s.works(r)
				}
			})
		})
	}
}
