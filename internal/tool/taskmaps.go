package tool

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/flags"
)

// maps returns the paths of --cgroupmap and --mntnsmap by the name of the map in task.bpf.h.
func (t *tasks) maps() map[string]string {
	return map[string]string{"targ_cgroup_map": t.CgroupMap, "targ_mntns_map": t.MntNSMap}
}

// unused returns the functions that only read the maps of --cgroupmap and --mntnsmap, if there are none.
func (t *tasks) unused() []string {
	if t.CgroupMap == "" && t.MntNSMap == "" {
		return []string{"task_in_no_map"}
	}
	return nil
}

// pinned opens the maps of --cgroupmap and --mntnsmap.
func (t *tasks) pinned() (map[string]*ebpf.Map, error) {
	opened := map[string]*ebpf.Map{}
	for name, path := range t.maps() {
		if path == "" {
			continue
		}
		m, err := openKeys(path)
		if err != nil {
			flag := "--" + strings.ReplaceAll(strings.TrimPrefix(name, "targ_"), "_", "")
			err = fmt.Errorf("%s %s: %w", flag, path, err)
			if !errors.Is(err, fs.ErrPermission) {
				err = flags.Usage(err)
			}
			return nil, errors.Join(err, closeMaps(opened))
		}
		opened[name] = m
	}
	return opened, nil
}

// openKeys opens a pinned hash map with keys of 8 bytes.
func openKeys(path string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("open pinned map: %w", err)
	}
	if kind := m.Type(); (kind != ebpf.Hash && kind != ebpf.LRUHash) || m.KeySize() != 8 {
		return nil, errors.Join(fmt.Errorf("the map is of type %s with keys of %d bytes: it must be a hash map with keys of 8 bytes",
			kind, m.KeySize()), m.Close())
	}
	return m, nil
}

func closeMaps(opened map[string]*ebpf.Map) error {
	var errs []error
	for _, m := range opened {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
