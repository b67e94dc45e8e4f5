package tool

import (
	"sync"

	"github.com/corescope/corescope/internal/limit"
	"github.com/corescope/corescope/internal/system"
)

// Common has facts about the machine that the streams of one process share, so that they are read and kept
// once. It is safe for concurrent use.
type Common struct {
	limits *limit.Reporter
	disks  *system.Disks

	mutex   sync.Mutex
	cgroups *system.Cgroups
}

// NewCommon returns what streams can share. warn receives notices, of input that exceeds limits.
func NewCommon(warn func(error)) *Common {
	return &Common{limits: limit.NewReporter(warn), disks: system.NewDisks("/")}
}

// openCgroups returns the shared cgroups. An error is not kept: cgroups may be mounted later.
func (c *Common) openCgroups() (*system.Cgroups, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.cgroups == nil {
		cgroups, err := openCgroups(c.limits)
		if err != nil {
			return nil, err
		}
		c.cgroups = cgroups
	}
	return c.cgroups, nil
}

func openCgroups(limits *limit.Reporter) (*system.Cgroups, error) {
	c, err := system.OpenCgroups("/")
	if err != nil {
		return nil, err
	}
	c.Report(limits)
	return c, nil
}

// use makes the environment use what streams share.
func (e *Env) use(c *Common) {
	e.cgroups, e.Disks, e.isShared = c.openCgroups, c.disks, true
}

// followCgroup makes the hierarchy of a target the one whose cgroups label events. Streams that share their
// cgroups do not share this choice, so one with another hierarchy reads its own.
func (e *Env) followCgroup(t system.Target) error {
	c, err := e.Cgroups()
	if err != nil {
		return err
	}
	if e.isShared && c.Default() != t.Controller {
		if c, err = openCgroups(e.limits); err != nil {
			return err
		}
		e.cgroups, e.isShared = func() (*system.Cgroups, error) { return c, nil }, false
	}
	c.Follow(t)
	return nil
}
