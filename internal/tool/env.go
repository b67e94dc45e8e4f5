package tool

import (
	"fmt"
	"sync"

	"github.com/corescope/corescope/internal/system"
)

// Env is the machine, as far as a tool asks for it. Each part is read when it is
// first asked for.
type Env struct {
	cgroups func() (*system.Cgroups, error)
	Users   *system.Users
	Disks   *system.Disks
}

func newEnv() *Env {
	return &Env{
		cgroups: sync.OnceValues(func() (*system.Cgroups, error) { return system.OpenCgroups("/") }),
		Users:   system.NewUsers("/"),
		Disks:   system.NewDisks("/"),
	}
}

// Cgroups returns the machine's cgroups.
func (e *Env) Cgroups() (*system.Cgroups, error) {
	c, err := e.cgroups()
	if err != nil {
		return nil, fmt.Errorf("read cgroups: %w", err)
	}
	return c, nil
}

// rememberCgroups reads all cgroups there are, so that those that go before an event is
// read have their names.
func (e *Env) rememberCgroups() error {
	c, err := e.Cgroups()
	if err != nil {
		return err
	}
	return c.Snapshot()
}

// Owner returns what owns a cgroup, as far as it is known.
func (e *Env) Owner(cgroupID uint64) system.Owner {
	c, err := e.Cgroups()
	if err != nil {
		return system.Owner{}
	}
	return c.Owner(cgroupID)
}

// CgroupPath returns the path of a cgroup below its hierarchy's mount, or "".
func (e *Env) CgroupPath(id uint64) string {
	c, err := e.Cgroups()
	if err != nil {
		return ""
	}
	path, _ := c.Path(id)
	return path
}
