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
	// ErrAmbiguous means that several containers have that name, or IDs with that prefix.
	ErrAmbiguous = errors.New("more than one container matches")
)

// Owner returns the container, pod and unit of a cgroup of the Default hierarchy, from its path and
// from the files of the container runtimes. It reads these again after a second, because some
// runtimes write them late and containers can be renamed. The result stays cached when the cgroup
// is removed. For a container inside a container (kind, docker in LXC) only the ID is set: the
// files of its runtime are in the outer container, which is not trusted.
func (c *Cgroups) Owner(id uint64) Owner {
	now := c.now()
	c.mu.RLock()
	cached, ok := c.owners[id]
	c.mu.RUnlock()
	if ok && now.Sub(cached.read) < missTTL {
		return cached.Owner
	}
	cgroup, found := c.Path(id)
	if !found {
		return cached.Owner
	}
	owner, _ := c.runtimes.owner(cgroup)
	if owner.ContainerID == "" && cached.ContainerID != "" {
		owner = cached.Owner // the runtime has deleted its files
	}
	c.mu.Lock()
	c.owners[id] = cachedOwner{owner, now}
	c.mu.Unlock()
	return owner
}

// cachedOwner is an Owner and the time when it was read.
type cachedOwner struct {
	Owner
	read time.Time
}

// owner returns the owner of a cgroup, and whether the cgroup is the topmost one of its container.
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

// resolve looks up the names of the containers. A container inside a container of a pod belongs to
// the pod too.
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

// FindContainer finds a running container by its name, its full ID, or a unique prefix of its ID
// with at least 4 digits. Names of Kubernetes containers are not unique, so POD/NAME and
// NAMESPACE/POD/NAME are accepted too. It returns the topmost cgroup of the container in the
// Default hierarchy, or several if the runtime created several.
//
// Returns ErrNoContainer, or ErrAmbiguous with the candidates.
func (c *Cgroups) FindContainer(nameOrID string) ([]Target, error) {
	all, err := c.containers()
	if err != nil {
		return nil, fmt.Errorf("find container %q: %w", nameOrID, err)
	}
	for _, matches := range []func(running) bool{
		func(r running) bool { return r.ContainerID == nameOrID },
		func(r running) bool { return slices.Contains(r.names(), nameOrID) },
		func(r running) bool { return isPrefix(nameOrID, r.ContainerID) },
	} {
		found := slices.DeleteFunc(slices.Clone(all), func(r running) bool { return !matches(r) })
		if len(found) > 0 {
			return targetsOf(nameOrID, found)
		}
	}
	return nil, fmt.Errorf("find container %q: %w", nameOrID, ErrNoContainer)
}

// containers returns the topmost cgroups of all containers.
func (c *Cgroups) containers() ([]running, error) {
	var all []running
	err := c.main.walk(func(cgroup string, id uint64) {
		c.cache(cgroup, id)
		if owner, top := c.runtimes.owner(cgroup); top {
			all = append(all, running{owner, Target{ID: id, Controller: c.Default(), Path: cgroup}})
		}
	})
	return all, err
}

// identity returns a unique identifier: the ID if it is a hexadecimal number, else the path of the
// cgroup, because IDs chosen by users are unique only within a containerd namespace.
func (r running) identity() string {
	if isContainerID(r.ContainerID) {
		return r.ContainerID
	}
	return r.Path
}

// names returns the names that FindContainer accepts for the container.
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

// targetsOf returns the cgroups of the container. It fails if there is more than one container.
func targetsOf(nameOrID string, found []running) ([]Target, error) {
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

// list returns the sorted names of up to 10 candidates, and the number of the others.
func list(candidates map[string]string) string {
	const limit = 10
	var names []string
	for _, name := range candidates {
		names = append(names, name)
	}
	slices.Sort(names)
	if more := len(names) - limit; more > 0 {
		names = append(names[:limit], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// String describes a container with an ID or name that FindContainer accepts.
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
