package target

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Spec{
		"vfs_read":                   {Name: "vfs_read"},
		"p:vfs_read":                 {Name: "vfs_read"},
		"p::vfs_*":                   {Name: "vfs_*"},
		"k:vfs_read":                 {Name: "vfs_read"},
		"kprobe:vfs_read+0x10":       {Name: "vfs_read", Offset: 16},
		"r:vfs_read":                 {Name: "vfs_read", Return: true},
		"r::vfs_read":                {Name: "vfs_read", Return: true},
		"kretprobe:vfs_read":         {Name: "vfs_read", Return: true},
		"fexit:vfs_read":             {Name: "vfs_read", Return: true},
		"c:malloc":                   {Kind: User, File: "c", Name: "malloc"},
		"p:c:malloc":                 {Kind: User, File: "c", Name: "malloc"},
		"r:c:malloc":                 {Kind: User, File: "c", Name: "malloc", Return: true},
		"uprobe:/bin/sh:main":        {Kind: User, File: "/bin/sh", Name: "main"},
		"uretprobe:/bin/sh:main":     {Kind: User, File: "/bin/sh", Name: "main", Return: true},
		"/opt/go:main.(*T).Run":      {Kind: User, File: "/opt/go", Name: "main.(*T).Run"},
		"t:sched:sched_*":            {Kind: Tracepoint, Name: "sched:sched_*"},
		"tracepoint:sched:*":         {Kind: Tracepoint, Name: "sched:*"},
		"u:c:setjmp":                 {Kind: USDT, File: "c", Name: "setjmp"},
		"usdt:/bin/sh:provider:name": {Kind: USDT, File: "/bin/sh", Name: "provider:name"},
	} {
		if got, err := Parse(text, false); err != nil || got != want {
			t.Errorf("%s is %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"p:", "p::", "t:sched", "t::x", "u:c", "uprobe:malloc", "c:", "f+x", "+1", "r:f+1"} {
		if got, err := Parse(text, false); !errors.Is(err, ErrSpec) {
			t.Errorf("%q is parsed as %+v, %v, want ErrSpec", text, got, err)
		}
	}
	if got, err := Parse("", false); !errors.Is(err, ErrMissing) {
		t.Errorf("an empty text is parsed as %+v, %v, want ErrMissing", got, err)
	}
	if got, err := Parse("vfs_(", true); !errors.Is(err, ErrSpec) {
		t.Errorf("invalid regular expression: %+v, %v, want ErrSpec", got, err)
	}
}

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		text     string
		isRegexp bool
		name     string
		want     bool
	}{
		{"vfs_*", false, "vfs_read", true},
		{"vfs_*", false, "xvfs_read", false},
		{"vfs_rea?", false, "vfs_read", true},
		{"vfs_rea", false, "vfs_read", false},
		{"a.b", false, "axb", false},
		{"/x:main.(*T).*", false, "main.(*T).Run", true},
		{"vfs_(read|write)", true, "vfs_write", true},
		{"vfs_(read|write)$", true, "vfs_writev", false},
		{"read", true, "vfs_read", false},
	} {
		s, err := Parse(tt.text, tt.isRegexp)
		if err != nil {
			t.Fatal(err)
		}
		match, err := s.matcher()
		if err != nil {
			t.Fatal(err)
		}
		if got := match.MatchString(tt.name); got != tt.want {
			t.Errorf("%s matches %s: %v", tt.text, tt.name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"vfs_*", "p:c:malloc+0x10", "t:a:b", "u:c:x", "r::f"} {
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, isRegexp bool) {
		s, err := Parse(text, isRegexp)
		if (err == nil) == errors.Is(err, ErrSpec) || err == nil && s.Name == "" {
			t.Errorf("%q is %+v, %v", text, s, err)
		}
	})
}

// TestSystemCall checks that sys_NAME selects the functions of all tasks, and only these.
func TestSystemCall(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the functions have other names")
	}
	dir := t.TempDir()
	symbols := "1000 T __x64_sys_lseek\n2000 T __ia32_sys_lseek\n3000 T __ia32_compat_sys_lseek\n4000 T __x64_compat_sys_readv\n5000 T __x64_sys_lseek64\n"
	if err := os.WriteFile(filepath.Join(dir, "kallsyms"), []byte(symbols), 0o600); err != nil {
		t.Fatal(err)
	}
	_, places, err := (&Finder{Proc: dir}).FindText("p::sys_lseek", false)
	got := ""
	for _, p := range places {
		got += fmt.Sprint(p.Name, " ", p.IsSyscall, " ", p.IsIA32, "; ")
	}
	if want := "__ia32_compat_sys_lseek true true; __ia32_sys_lseek true true; __x64_sys_lseek true false; "; got != want || err != nil {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
