package futexctn

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// hold runs the program and returns the keys of the histograms of the thread that waits.
func hold(t *testing.T, program, kind, flag string) (holder int, keys []tooltest.Row) {
	t.Helper()
	p := tooltest.StartLockHolder(t, program, kind)
	res := tooltest.JSON(t, Tool, []string{flag, "--pid", fmt.Sprint(p.PID)}, p.Run)
	for _, h := range res.Histograms {
		if key := h.Object("key"); int(key.Num("tid")) == p.WaiterTID {
			keys = append(keys, key)
		}
	}
	return p.PID, keys
}

// readsRegisters reports whether programs can read the registers of a task, which tell in which system call it is
// (kernel 5.15).
func readsRegisters(t *testing.T) bool {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var helpers *btf.Enum
	if err := kernel.TypeByName("bpf_func_id", &helpers); err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(helpers.Values, func(v btf.EnumValue) bool { return v.Name == "BPF_FUNC_task_pt_regs" })
}

// TestHolder waits for locks whose holder is known, and for some whose holder is not. The map has whether
// waits with a known holder have its stack: it lacks if another thread, or a signal, ended the wait.
func TestHolder(t *testing.T) {
	tooltest.Root(t)
	c := tooltest.CompileC(t, tooltest.LockHolder, "-pthread")
	cxx := ""
	flag, stack, none := "--holder-stack", []bool{true}, []bool{false}
	if !readsRegisters(t) {
		tooltest.Fails(t, Tool, []string{flag}, tool.ExitUnsupported, "waking")
		flag, stack = "--holder", none
	}
	for kind, want := range map[string][]bool{
		"mutex": stack, "checked": stack, "robust": stack, "pi": stack, "write": stack, "read": stack, "standard": stack,
		"passed": none, "signal": append(none, stack...), "readers": nil, "cond": nil,
	} {
		t.Run(kind, func(t *testing.T) {
			program := c
			if kind == "standard" {
				if cxx == "" {
					cxx = tooltest.CompileCXX(t, tooltest.LockHolder, "-pthread")
				}
				program = cxx
			}
			holder, keys := hold(t, program, kind, flag)
			stacks := map[bool]bool{}
			for _, k := range keys {
				name, tid, hasStack := k.Str("holder"), int(k.Num("holder_tid")), k["holder_user_stack"] != nil
				if hasStack && !slices.Contains(k.Symbols("holder_user_stack"), tooltest.HolderFunction) {
					t.Errorf("key %v: the stack of the holder lacks %s", k, tooltest.HolderFunction)
				}
				switch {
				case name == "holder" && tid == holder:
					stacks[hasStack] = true
				case k["holder"] != nil || tid != 0 || hasStack:
					t.Errorf("key %v: want holder %d or none", k, holder)
				}
			}
			for _, has := range []bool{false, true} {
				if stacks[has] != slices.Contains(want, has) {
					t.Errorf("a wait for thread %d has a stack of it = %v: %v, want %v: %v", holder, has, stacks[has], !stacks[has], keys)
				}
			}
			if len(keys) == 0 {
				t.Error("no wait")
			}
		})
	}
}
