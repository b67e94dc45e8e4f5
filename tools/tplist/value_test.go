package tplist

import "testing"

// TestLocationBase64 expects the exact bytes of locations that are not UTF-8.
func TestLocationBase64(t *testing.T) {
	args := operands([]string{"8@\xff"})
	if got, want := string(args.AppendJSON(nil)), `[{"name":"arg1","type":"uint64_t","location":"\ufffd","location_base64":"/w=="}]`; got != want {
		t.Errorf("arguments %s, want %s", got, want)
	}
	all := places{{offset: 1, operands: []string{"8@\xff", "a"}}, {offset: 2, operands: []string{"b"}}, {offset: 3}}
	want := `[{"offset":1,"args":["8@\ufffd","a"],"args_base64":["OED/","YQ=="]},{"offset":2,"args":["b"]},{"offset":3}]`
	if got := string(all.AppendJSON(nil)); got != want {
		t.Errorf("places %s, want %s", got, want)
	}
}
