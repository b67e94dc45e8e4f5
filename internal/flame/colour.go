package flame

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// waitColours are the hues of kernel functions in off-CPU profiles, by the resource that a
// function name containing one of the words waits for.
var waitColours = []struct {
	hue      int
	resource string
	words    []string
}{
	{280, "locks", []string{"futex", "mutex", "rwsem", "semaphore"}},
	{0, "disks", []string{"io_schedule", "blk_", "jbd2", "ext4_", "xfs_", "btrfs_", "folio_wait", "filemap_", "fsync"}},
	{120, "network", []string{"tcp_", "udp_", "inet_", "sk_wait", "sock_", "unix_stream", "skb_"}},
	{55, "pipes and events", []string{"pipe_", "ep_poll", "epoll", "do_poll", "do_select", "eventfd"}},
	{200, "timers", []string{"nanosleep", "hrtimer", "schedule_timeout"}},
	{320, "children", []string{"do_wait", "wait_for_completion"}},
}

// colour returns the colour of a frame. It depends only on the name, kind and unit.
func (u Unit) colour(f Frame) string {
	h := fnv.New32a()
	h.Write([]byte(f.Name))
	n := int(h.Sum32() >> 8)
	light := 62 + n%14
	switch {
	case f.Kind == Label:
		return fmt.Sprintf("hsl(0,0%%,%d%%)", 75+n%10)
	case f.Kind == Kernel && u == Nanoseconds:
		for _, w := range waitColours {
			for _, word := range w.words {
				if strings.Contains(f.Name, word) {
					return fmt.Sprintf("hsl(%d,55%%,%d%%)", w.hue, light)
				}
			}
		}
		return fmt.Sprintf("hsl(215,20%%,%d%%)", light+6)
	case f.Kind == Kernel:
		return fmt.Sprintf("hsl(%d,85%%,%d%%)", 26+n/16%12, light)
	case u == Nanoseconds:
		return fmt.Sprintf("hsl(%d,50%%,%d%%)", 205+n/16%20, light+6)
	}
	return fmt.Sprintf("hsl(%d,75%%,%d%%)", 48+n/16%10, light)
}

// keyEntry is an entry of the colour key.
type keyEntry struct{ colour, what string }

// key returns the colour key of profiles of that unit.
func (u Unit) key() (all []keyEntry) {
	if u != Nanoseconds {
		return nil
	}
	for _, w := range waitColours {
		all = append(all, keyEntry{fmt.Sprintf("hsl(%d,55%%,50%%)", w.hue), w.resource})
	}
	return all
}
