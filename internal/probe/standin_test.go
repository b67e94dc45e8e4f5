package probe

import (
	"errors"
	"strings"
	"testing"
)

// A hook stands in for another one where that cannot be had or is not asked for, which is
// told, and nowhere else.
func TestStandIn(t *testing.T) {
	pair := []StandIn{{Hook: "calls", For: "functions", Means: "all is slower"}}
	for _, tc := range []struct {
		name, functions, calls string // tracepoints
		force                  string
		want                   string
		err                    string
	}{
		{"not needed", "sys_enter", "sys_exit", "", "functions: raw_tp/sys_enter", ""},
		{"needed", "no_such", "sys_exit", "", "calls: raw_tp/sys_exit", ""},
		{"asked for", "sys_enter", "sys_exit", "calls=raw", "calls: raw_tp/sys_exit", ""},
		{"not asked for", "no_such", "sys_exit", "functions=raw", "", "attach hook functions: raw_tp/no_such"},
		{"neither", "no_such", "no_such_either", "", "", "attach hook calls: raw_tp/no_such_either"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var told []string
			opts := Options{StandIns: pair, Notify: func(err error) { told = append(told, err.Error()) }}
			if tc.force != "" {
				opts.Force = []string{tc.force}
			}
			o := newObject().add("functions__raw", tc.functions).add("calls__raw", tc.calls).load(t, opts)
			err := o.Attach()
			if tc.err == "" && err != nil || tc.err != "" && (!errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			if got := strings.Join(o.Taken(), ", "); got != tc.want {
				t.Errorf("taken: %s, want %s", got, tc.want)
			}
			isIn := strings.HasPrefix(tc.want, "calls")
			if isIn != (strings.Join(told, "") == "hook calls in place of functions: all is slower") || len(told) > 1 {
				t.Errorf("told %q", told)
			}
		})
	}
}
