package flags

import (
	"fmt"
	"reflect"
)

// Kind is the type of object that the numbers of a flag identify.
type Kind string

// The kinds of the tag id.
const (
	Process Kind = "process"
	Thread  Kind = "thread"
	CPU     Kind = "cpu"
)

// IDs are the values of a flag with the tag id.
type IDs struct {
	Flag string // "--pid"
	Kind Kind
	IDs  []int64
}

// addIDs registers a flag with the tag id. Its default is not an ID.
func (s *Set) addIDs(v reflect.Value, flag, kind string) error {
	switch Kind(kind) {
	case "":
		return nil
	case Process, Thread, CPU:
	default:
		return fmt.Errorf("tag id: %q is not process, thread or cpu", kind)
	}
	s.ids = append(s.ids, func() IDs {
		ids := IDs{Flag: "--" + flag, Kind: Kind(kind)}
		if !s.flags.Changed(flag) {
			return ids
		}
		all := []reflect.Value{v}
		if v.Kind() == reflect.Slice {
			all = all[:0]
			for i := range v.Len() {
				all = append(all, v.Index(i))
			}
		}
		for _, number := range all {
			if number.CanInt() {
				ids.IDs = append(ids.IDs, number.Int())
			} else {
				ids.IDs = append(ids.IDs, int64(number.Uint()))
			}
		}
		return ids
	})
	return nil
}

// IDs returns the numbers on the command line that identify processes, threads and CPUs, by flag.
func (s *Set) IDs() []IDs {
	var all []IDs
	for _, ids := range s.ids {
		if given := ids(); len(given.IDs) > 0 {
			all = append(all, given)
		}
	}
	return all
}
