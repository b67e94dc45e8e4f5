package probe

import (
	"slices"
	"strings"
)

// Unattached returns the hooks in user space that have no attach point because no process has
// mapped a suitable file, with the names of the files.
func (o *Objects) Unattached() map[string]string {
	out := map[string]string{}
	for hook, tried := range o.Tried {
		for _, a := range tried {
			if names := o.unattached(a.Variant); a.Err == nil && names != "" {
				out[hook] = names
			}
		}
	}
	return out
}

// unattached returns the names of the files that all programs of a variant wait for, or "" if one
// of the programs is attached.
func (o *Objects) unattached(v Variant) string {
	var names []string
	for _, section := range v.Where {
		p, ok := parseUserSection(section)
		if !ok || len(o.Files(p.files)) > 0 {
			return ""
		}
		names = append(names, o.options.Files[p.files].Names...)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " or ")
}
