package probe

import (
	"slices"
	"strings"
)

// Unattached lists the hooks in user space that were taken and have no attach point, as no
// file of their names was mapped, with these names.
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

// unattached returns the names of the files that all programs of a variant wait for, "" if
// one of them is attached.
func (o *Objects) unattached(v Variant) string {
	var names []string
	for _, section := range v.Where {
		p, ok := userPlace(section)
		if !ok || len(o.Files(p.files)) > 0 {
			return ""
		}
		names = append(names, o.options.Files[p.files].Names...)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " or ")
}
