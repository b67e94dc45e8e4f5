package probe

import (
	"slices"
	"strings"
)

// Unattached returns the hooks in user space that are attached nowhere, with the reason: no process has
// mapped a suitable file, or those that had ended before programs could be attached in it.
func (o *Objects) Unattached() map[string]string {
	out := map[string]string{}
	for hook, tried := range o.Tried {
		for _, a := range tried {
			if reason := o.unattached(a.Variant); a.Err == nil && reason != "" {
				out[hook] = reason
			}
		}
	}
	return out
}

// unattached returns the reason why no program of a variant is attached, or "" if one of them is.
func (o *Objects) unattached(v Variant) string {
	var names, missed []string
	for _, section := range v.Where {
		p, ok := parseUserSection(section)
		if !ok || len(o.Files(p.files)) > 0 {
			return ""
		}
		names = append(names, o.options.Files[p.files].Names...)
		missed = append(missed, o.user.missed(p.files)...)
	}
	slices.Sort(names)
	slices.Sort(missed)
	switch {
	case len(names) == 0:
		return ""
	case len(missed) > 0:
		return "processes mapped " + shortList(slices.Compact(missed)) + ", but ended or unmapped it before programs could be attached"
	}
	return "no process mapped " + strings.Join(slices.Compact(names), " or ")
}

// addMissed records a wanted file that a process had mapped, but that is not mapped any more.
func (u *user) addMissed(fs *files, path string) {
	const most = 16
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(fs.missed) < most {
		fs.missed = appendNew(fs.missed, path)
	}
}

// missed lists the files that addMissed has recorded for a name.
func (u *user) missed(name string) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if fs := u.names[name]; fs != nil {
		return slices.Clone(fs.missed)
	}
	return nil
}
