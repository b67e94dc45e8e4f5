package trace

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/tool"
)

// parseCommand interprets the commands "info" and "trace" of ksnoop, the first argument.
func (o *options) parseCommand() {
	if len(o.Probes) < 2 {
		return
	}
	switch o.Probes[0] {
	case "info":
		o.Info = true
	case "trace":
	default:
		return
	}
	o.Probes = o.Probes[1:]
}

// info prints the C declarations of the functions that the probes name.
func (o *options) info(w io.Writer, env *tool.Env) error {
	if len(o.Probes) == 0 {
		return fmt.Errorf("%w: missing function", flags.ErrUsage)
	}
	for _, name := range o.Probes {
		f, err := env.KernelFunction(name)
		if errors.Is(err, btf.ErrNotFound) {
			return flags.Usage(err)
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w, declaration(f)); err != nil {
			return err
		}
	}
	return nil
}

func declaration(f *btf.Func) string {
	proto, ok := f.Type.(*btf.FuncProto)
	if !ok {
		return f.Name
	}
	params := []string{}
	for _, p := range proto.Params {
		params = append(params, join(typeName(p.Type), p.Name))
	}
	if n := len(params); n == 0 {
		params = []string{"void"}
	} else if _, isVoid := proto.Params[n-1].Type.(*btf.Void); isVoid && proto.Params[n-1].Name == "" {
		params[n-1] = "..."
	}
	return join(typeName(proto.Return), f.Name) + "(" + strings.Join(params, ", ") + ");"
}

func join(kind, name string) string {
	if name == "" || strings.HasSuffix(kind, "*") {
		return kind + name
	}
	return kind + " " + name
}

// typeName returns a type in C syntax. Arrays and functions are shown as pointers, which they are in
// parameter lists.
func typeName(t btf.Type) string {
	switch t := t.(type) {
	case *btf.Void:
		return "void"
	case *btf.Pointer:
		if _, isFunc := btf.UnderlyingType(t.Target).(*btf.FuncProto); isFunc && t.Target.TypeName() == "" {
			return typeName(t.Target)
		}
		return join(typeName(t.Target), "*")
	case *btf.FuncProto:
		return typeName(t.Return) + " (*)()"
	case *btf.Array:
		return join(typeName(t.Type), "*")
	case *btf.Const:
		if _, ok := t.Type.(*btf.Pointer); ok {
			return typeName(t.Type) + "const"
		}
		return "const " + typeName(t.Type)
	case *btf.Volatile:
		return "volatile " + typeName(t.Type)
	case *btf.Restrict:
		return typeName(t.Type)
	case *btf.TypeTag:
		return typeName(t.Type)
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
