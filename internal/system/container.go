package system

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// ErrNoContainer means that no running container has that name or ID.
	ErrNoContainer = errors.New("no such container")
	// ErrAmbiguous means that several containers have that name, or an ID that begins so.
	ErrAmbiguous = errors.New("more than one container fits")
)

// Owner tells what a cgroup of the Default hierarchy belongs to, by its path and by the files of the
// container runtimes. It is kept when the cgroup is gone; names that no file gives yet are looked for
// again after a second. The containers inside a container (kind, docker in LXC) are known by ID only:
// their runtime's files are in that container, where it could plant anything.
func (c *Cgroups) Owner(id uint64) Owner {
	c.mu.RLock()
	owner, ok := c.owners[id]
	c.mu.RUnlock()
	if ok {
		return owner
	}
	cgroup, ok := c.Path(id)
	if !ok {
		return Owner{}
	}
	owner, complete := c.runtimes.resolve(parseCgroup(cgroup))
	if complete {
		c.mu.Lock()
		c.owners[id] = owner
		c.mu.Unlock()
	}
	return owner
}

// resolve adds names, and tells whether all were found. A container inside a container of a pod
// belongs to the pod too.
func (r *runtimes) resolve(p parsed) (owner Owner, complete bool) {
	owner, complete = p.Owner, true
	for _, id := range slices.Backward(p.ids) {
		n := r.lookup(id, p.user)
		if id == owner.ContainerID {
			owner.Container = n.container
			owner.Runtime = first(owner.Runtime, n.runtime)
		}
		if owner.Pod == "" {
			owner.Pod, owner.Namespace = n.pod, n.namespace
		}
		complete = complete && n.found()
	}
	return owner, complete
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
		if p := parseCgroup(cgroup); p.top {
			owner, _ := c.runtimes.resolve(p)
			all = append(all, running{owner, Target{ID: id, Controller: c.Default(), Path: cgroup}})
		}
	})
	return all, err
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
		candidates[r.ContainerID] = r.String()
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
	if len(names) == 0 {
		return fmt.Sprintf("%q", r.ContainerID)
	}
	return fmt.Sprintf("%.12q (%q)", r.ContainerID, names[len(names)-1])
}
