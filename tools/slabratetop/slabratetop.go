// Package slabratetop shows the most used slab caches of the kernel.
package slabratetop

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh slabratetop.bpf.c

type options struct{ source.Top }

// key mirrors struct table_key.
type key struct{ Cache uint64 }

// counts mirrors struct table_value.
type counts struct {
	Allocs, Bytes uint64
	Name          [64]byte
}

type row struct {
	Cache  value.Name `json:"cache" col:"CACHE,width=32" help:"name of the slab cache, as in /proc/slabinfo; the kernel merges caches of similar objects under the name of the first one (see merged)"`
	Allocs uint64     `json:"allocs" col:"ALLOCS,width=8,right" help:"objects allocated from this cache in the interval"`
	Bytes  uint64     `json:"bytes" col:"BYTES,width=12,right" help:"their size in the cache, including metadata and padding"`
	Merged value.Name `json:"merged" col:"MERGED,width=40" help:"names of the other caches that the kernel has merged with this one, separated by commas: allocs and bytes include their objects; from /sys/kernel/slab at the first report, empty if that does not list the cache"`
}

// Tool is the definition of slabratetop.
var Tool = tool.Define(tool.Spec{
	Name:     "slabratetop",
	Category: "memory",
	Summary:  "Kernel memory allocation rate by slab cache (kmem_cache_alloc), as a top-like table",
	Description: `Counts the objects that the kernel allocates from slab caches, per interval (one second by default) and by cache, and shows the caches with the most bytes first. It shows the rate of allocation, not what is in use: see slabtop(1) and memleak --kernel.

Allocations are counted at kmem:kmem_cache_alloc when they succeed. Before kernel 5.19 the tracepoint does not name the cache; then the functions kmem_cache_alloc and kmem_cache_alloc_node are traced. As a kprobe, these count failed allocations too.

SLUB, the kernel's allocator, merges a new cache with an existing one whose objects have a similar size and the same properties. Their objects cannot be distinguished: a row has the name of the cache that was created first, which can be one that the workload does not use. --columns +merged shows the names that share it. A kernel that is booted with slab_nomerge has no merged caches.

Memory from kmalloc() is not counted, although it comes from caches named kmalloc-N, nor are allocations in bulk (kmem_cache_alloc_bulk): the kernel does not report their cache.

Task filters select by the current task. In an interrupt that is an arbitrary one.`,
	Peers: []string{
		"Allocations for a NUMA node (kmem_cache_alloc_node), and of inodes and directory entries (kmem_cache_alloc_lru), are counted; libbpf-tools traces kmem_cache_alloc only.",
		"--sort accepts name, count and size, and the names of columns.",
		"JSON and CSV have all rows; --rows (20 in text) limits them too if given.",
	},
	Overhead: "An allocation took 276 ns (107,000 allocations of find(1), otherwise busy CPUs; --stats).",
	Examples: []string{
		"slabratetop               # a screen of the busiest caches, each second",
		"slabratetop -C 5 3        # three tables of five seconds each",
		"slabratetop -p 1234 -s count  # allocations for one process, by number",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Top: source.TopBy("size")}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	merged := sync.OnceValue(func() map[string]value.Name { return mergedCaches("/sys/kernel/slab") })
	return &source.Table[key, counts, row]{
		// Only in older kernels allocations for a NUMA node are separate.
		Plan:      tool.Plan{Optional: []string{"alloc_node"}},
		Top:       &o.Top,
		Columns:   []string{"cache", "allocs", "bytes"},
		SortNames: map[string]string{"name": "cache", "count": "allocs", "size": "bytes"},
		Label:     func(_ *key, c *counts) row { return newRow(c, merged()) },
		Fill:      func(r *row, c *counts, _ time.Duration) { r.Allocs, r.Bytes = c.Allocs, c.Bytes },
	}, nil
}

func newRow(c *counts, merged map[string]value.Name) row {
	name := value.NameOf(c.Name[:])
	return row{Cache: name, Merged: merged[string(name)]}
}

// mergedCaches returns the names of the other caches that share a cache, by name. The kernel has a
// symbolic link for each name of a cache that can be merged.
func mergedCaches(dir string) map[string]value.Name {
	links, _ := os.ReadDir(dir) // without SLUB or CONFIG_SYSFS nothing is known
	names := map[string][]string{}
	for _, l := range links {
		if to, err := os.Readlink(filepath.Join(dir, l.Name())); err == nil {
			names[to] = append(names[to], l.Name())
		}
	}
	out := map[string]value.Name{}
	for _, all := range names {
		for i, name := range all {
			out[name] = value.Name(strings.Join(slices.Concat(all[:i], all[i+1:]), ","))
		}
	}
	return out
}
