package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/binary"
)

// ErrExited is returned for a run that is restricted to some processes, if all of them exited before
// programs were attached in their files.
var ErrExited = errors.New("exited before programs were attached")

// exited returns ErrExited if the files are those of processes of the command line which have all
// exited, otherwise nil. The process of a command is not one of them: it waits until programs are attached.
func exited(want *binary.Files) error {
	switch running := slices.ContainsFunc(want.PIDs, isRunning); {
	case len(want.PIDs) == 0 || want.Has != nil || running:
		return nil
	case len(want.PIDs) == 1:
		return fmt.Errorf("process %d %w", want.PIDs[0], ErrExited)
	}
	return fmt.Errorf("all %d processes %w", len(want.PIDs), ErrExited)
}

// isRunning reports whether a thread of the process is neither dead nor a zombie.
func isRunning(pid uint32) bool { return hasMemory(int(pid), memoryOwner(pid)) }

// cause returns why a hook could not be attached: ErrExited if the kernel did not find the processes
// that its programs are attached for, and they have exited, otherwise err.
func (u *user) cause(err error) error {
	var failed *HookError
	if !errors.As(err, &failed) {
		return err
	}
	for _, a := range failed.Tried {
		if !errors.Is(a.Err, fs.ErrNotExist) && !errors.Is(a.Err, unix.ESRCH) {
			continue
		}
		for _, section := range a.Variant.Where {
			p, _ := parseUserSection(section)
			if files := u.names[p.files]; files != nil {
				if gone := exited(&files.want); gone != nil {
					return gone
				}
			}
		}
	}
	return err
}

// eachProcess attaches a program for each process, without those that have exited meanwhile. It returns
// the error of one of these if no other is left. After another error it is attached for none.
func (u *user) eachProcess(p userSection, attach func(pid uint32) ([]link.Link, error)) ([]link.Link, error) {
	var links []link.Link
	var gone error
	for _, pid := range u.names[p.files].want.Processes() {
		more, err := attach(pid)
		switch {
		case err == nil:
			links = append(links, more...)
		case pid != 0 && !isRunning(pid):
			gone = err
		default:
			return nil, errors.Join(err, closeAll(links))
		}
	}
	if len(links) == 0 {
		return nil, gone
	}
	return links, nil
}
