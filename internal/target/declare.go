package target

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// Declaration returns the C declaration of a kernel function.
func Declaration(f *btf.Func) string {
	proto, ok := f.Type.(*btf.FuncProto)
	if !ok {
		return f.Name
	}
	params := []string{}
	for _, p := range proto.Params {
		params = append(params, join(TypeName(p.Type), p.Name))
	}
	if n := len(params); n == 0 {
		params = []string{"void"}
	} else if _, isVoid := proto.Params[n-1].Type.(*btf.Void); isVoid && proto.Params[n-1].Name == "" {
		params[n-1] = "..."
	}
	return join(TypeName(proto.Return), f.Name) + "(" + strings.Join(params, ", ") + ");"
}

func join(kind, name string) string {
	if name == "" || strings.HasSuffix(kind, "*") {
		return kind + name
	}
	return kind + " " + name
}

// TypeName returns a type in C syntax. Arrays and functions are shown as pointers, which they are in
// parameter lists.
func TypeName(t btf.Type) string {
	switch t := t.(type) {
	case *btf.Void:
		return "void"
	case *btf.Pointer:
		if _, isFunc := btf.UnderlyingType(t.Target).(*btf.FuncProto); isFunc && t.Target.TypeName() == "" {
			return TypeName(t.Target)
		}
		return join(TypeName(t.Target), "*")
	case *btf.FuncProto:
		return TypeName(t.Return) + " (*)()"
	case *btf.Array:
		return join(TypeName(t.Type), "*")
	case *btf.Const:
		if _, ok := t.Type.(*btf.Pointer); ok {
			return TypeName(t.Type) + "const"
		}
		return "const " + TypeName(t.Type)
	case *btf.Volatile:
		return "volatile " + TypeName(t.Type)
	case *btf.Restrict:
		return TypeName(t.Type)
	case *btf.TypeTag:
		return TypeName(t.Type)
	case *btf.Struct:
		return "struct " + named(t.Name)
	case *btf.Union:
		return "union " + named(t.Name)
	case *btf.Enum:
		return "enum " + named(t.Name)
	case *btf.Fwd:
		return t.Kind.String() + " " + t.Name
	}
	return t.TypeName()
}

func named(name string) string {
	if name == "" {
		return "{...}"
	}
	return name
}

// Modules returns the loaded modules whose types the kernel provides.
func Modules() ([]string, error) {
	files, err := os.ReadDir("/sys/kernel/btf")
	if err != nil {
		return nil, fmt.Errorf("list modules: %w", err)
	}
	var all []string
	for _, f := range files {
		if f.Name() != "vmlinux" {
			all = append(all, f.Name())
		}
	}
	return all, nil
}

// Function returns a function of the kernel or of a loaded module. types returns the types of a module,
// or of the kernel itself for "".
//
// Returns btf.ErrNotFound.
func Function(name string, types func(module string) (*btf.Spec, error)) (*btf.Func, error) {
	kernel, err := types("")
	if err != nil {
		return nil, err
	}
	var f *btf.Func
	err = kernel.TypeByName(name, &f)
	if !errors.Is(err, btf.ErrNotFound) {
		return f, wrap(name, err)
	}
	modules, _ := Modules() // without modules, the function is not found
	for _, module := range modules {
		spec, specErr := types(module)
		if specErr != nil {
			continue // it was unloaded
		}
		if moduleErr := spec.TypeByName(name, &f); !errors.Is(moduleErr, btf.ErrNotFound) {
			return f, wrap(name, moduleErr)
		}
	}
	return nil, wrap(name, err)
}

func wrap(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read function %s: %w", name, err)
}

// Declare writes the C declarations of functions.
//
// Returns btf.ErrNotFound.
func Declare(w io.Writer, names []string, types func(module string) (*btf.Spec, error)) error {
	for _, name := range names {
		f, err := Function(name, types)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w, Declaration(f)); err != nil {
			return err
		}
	}
	return nil
}
