package system

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

var (
	// ErrNoContainer means that no running container has that name or ID.
	ErrNoContainer = errors.New("no such container")
	// ErrAmbiguous means that several containers have that name, or an ID that begins so.
	ErrAmbiguous = errors.New("more than one container fits")
)

// Owner tells what a cgroup of the Default hierarchy belongs to, by its path and by the files of the
// container runtimes, which are looked at again each second: they may come late, and containers can be
// renamed. What was found is kept when the cgroup is gone. Containers inside a container (kind, docker
// in LXC) are known by ID only: the files of their runtime are in that container, which could write
// anything there.
func (c *Cgroups) Owner(id uint64) Owner {
	now := c.now()
	c.mu.RLock()
	known, ok := c.owners[id]
	c.mu.RUnlock()
	if ok && now.Sub(known.read) < missTTL {
		return known.Owner
	}
	cgroup, found := c.Path(id)
	if !found {
		return known.Owner
	}
	owner, _ := c.runtimes.owner(cgroup)
	if owner.ContainerID == "" && known.ContainerID != "" {
		owner = known.Owner // its files are gone
	}
	c.mu.Lock()
	c.owners[id] = knownOwner{owner, now}
	c.mu.Unlock()
	return owner
}

// knownOwner is an Owner as it was found at a time.
type knownOwner struct {
	Owner
	read time.Time
}

// owner returns what a cgroup belongs to, and whether it is the topmost cgroup of its container.
func (r *runtimes) owner(cgroup string) (owner Owner, top bool) {
	p := parseCgroup(cgroup)
	if p.ContainerID == "" {
		var id string
		if id, p.top = r.bundleOf(cgroup); id != "" {
			p.ContainerID, p.ids = id, []string{id}
		}
	}
	return r.resolve(p), p.top
}

// resolve adds names. A container inside a container of a pod belongs to the pod too.
func (r *runtimes) resolve(p parsed) Owner {
	owner := p.Owner
	for _, id := range slices.Backward(p.ids) {
		n := r.lookup(id, p.user)
		if id == owner.ContainerID {
			owner.Container = n.container
			owner.Runtime = first(owner.Runtime, n.runtime)
		}
		if owner.Pod == "" {
			owner.Pod, owner.Namespace = n.pod, n.namespace
		}
	}
	return owner
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// running is a container that has a cgroup.
type running struct {
	Owner
	Target
}

// FindContainer finds a running container by its name, by its full ID, or by the first digits of its
// ID (at least 4) if no other begins so. In Kubernetes, where names repeat, POD/NAME and
// NAMESPACE/POD/NAME do as well. It returns the container's own topmost cgroup in the Default
// hierarchy, which is more than one only if the runtime made several. The error is ErrNoContainer, or
// ErrAmbiguous with the candidates.
func (c *Cgroups) FindContainer(nameOrID string) ([]Target, error) {
	all, err := c.containers()
	if err != nil {
		return nil, fmt.Errorf("find container %q: %w", nameOrID, err)
	}
	for _, fits := range []func(running) bool{
		func(r running) bool { return r.ContainerID == nameOrID },
		func(r running) bool { return slices.Contains(r.names(), nameOrID) },
		func(r running) bool { return isPrefix(nameOrID, r.ContainerID) },
	} {
		found := slices.DeleteFunc(slices.Clone(all), func(r running) bool { return !fits(r) })
		if len(found) > 0 {
			return only(nameOrID, found)
		}
	}
	return nil, fmt.Errorf("find container %q: %w", nameOrID, ErrNoContainer)
}

// containers returns the topmost cgroups of all containers.
func (c *Cgroups) containers() ([]running, error) {
	var all []running
	err := c.main.walk(func(cgroup string, id uint64) {
		c.remember(cgroup, id)
		if owner, top := c.runtimes.owner(cgroup); top {
			all = append(all, running{owner, Target{ID: id, Controller: c.Default(), Path: cgroup}})
		}
	})
	return all, err
}

// identity is what no other container has: its ID where that is a number, else its cgroup, as words
// are unique only within a namespace of containerd.
func (r running) identity() string {
	if isContainerID(r.ContainerID) {
		return r.ContainerID
	}
	return r.Path
}

// names returns what a user may call a container.
func (r running) names() []string {
	if r.Container == "" {
		return nil
	}
	names := []string{r.Container}
	if r.Pod != "" {
		names = append(names, r.Pod+"/"+r.Container, r.Namespace+"/"+r.Pod+"/"+r.Container)
	}
	return names
}

func isPrefix(digits, id string) bool {
	return len(digits) >= 4 && isHex(digits) && isContainerID(id) && strings.HasPrefix(id, digits)
}

// only returns the cgroups of the container found, if it is one.
func only(nameOrID string, found []running) ([]Target, error) {
	var targets []Target
	candidates := map[string]string{}
	for _, r := range found {
		targets = append(targets, r.Target)
		candidates[r.identity()] = r.String()
	}
	if len(candidates) > 1 {
		return nil, fmt.Errorf("find container %q: %w: %s", nameOrID, ErrAmbiguous, list(candidates))
	}
	return targets, nil
}

// list names the candidates, but no more than a reader will look at.
func list(candidates map[string]string) string {
	const most = 10
	var names []string
	for _, name := range candidates {
		names = append(names, name)
	}
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// String names a container so that a user can name it again.
func (r running) String() string {
	names := r.names()
	if !isContainerID(r.ContainerID) {
		return fmt.Sprintf("%q (cgroup %q)", r.ContainerID, r.Path)
	}
	if len(names) == 0 {
		return fmt.Sprintf("%q", r.ContainerID)
	}
	return fmt.Sprintf("%.12q (%q)", r.ContainerID, names[len(names)-1])
}
