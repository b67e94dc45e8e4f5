package system

import "testing"

func TestStackDepth(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  int
	}{
		"set":     {map[string]string{"proc/sys/kernel/perf_event_max_stack": "640\n"}, 640},
		"no file": {nil, 127},
		"invalid": {map[string]string{"proc/sys/kernel/perf_event_max_stack": "many\n"}, 127},
		"zero":    {map[string]string{"proc/sys/kernel/perf_event_max_stack": "0\n"}, 127},
	} {
		if got := StackDepth(tree(t, test.files)); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
