package stacktrace

import (
	"reflect"
	"strconv"
	"testing"
)

// TestDepthMaximum compares the maximum of --perf-max-stack-depth with MaxDepth.
func TestDepthMaximum(t *testing.T) {
	field, _ := reflect.TypeFor[Frames]().FieldByName("Depth")
	if got, want := field.Tag.Get("max"), strconv.Itoa(MaxDepth); got != want {
		t.Errorf("the maximum of --perf-max-stack-depth is %s, want %s", got, want)
	}
}
