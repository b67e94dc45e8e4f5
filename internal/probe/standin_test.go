package probe

import (
	"errors"
	"strings"
	"testing"
)

// TestStandIn checks that a stand-in is attached, with a notice, if the other hook cannot be
// attached or the stand-in is forced, and only then.
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
		{"forced", "sys_enter", "sys_exit", "calls=raw", "calls: raw_tp/sys_exit", ""},
		{"other hook forced", "no_such", "sys_exit", "functions=raw", "", "attach hook functions: raw_tp/no_such"},
		{"neither", "no_such", "no_such_either", "", "", "attach hook calls: raw_tp/no_such_either"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var notices []string
			opts := Options{StandIns: pair, Notify: func(err error) { notices = append(notices, err.Error()) }}
			if tc.force != "" {
				opts.Force = []string{tc.force}
			}
			o := newObject().add("functions__raw", tc.functions).add("calls__raw", tc.calls).load(t, opts)
			err := o.Attach()
			if tc.err == "" && err != nil || tc.err != "" && (!errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			if got := strings.Join(o.AttachedHooks(), ", "); got != tc.want {
				t.Errorf("attached: %s, want %s", got, tc.want)
			}
			want := ""
			if strings.HasPrefix(tc.want, "calls") {
				want = "using hook calls instead of functions: all is slower"
			}
			if got := strings.Join(notices, "; "); got != want {
				t.Errorf("notices: %q, want %q", got, want)
			}
		})
	}
}
