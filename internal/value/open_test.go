package value

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpenFlags(t *testing.T) {
	for _, tt := range []struct {
		flags OpenFlags
		want  string
	}{
		{0, "O_RDONLY"},
		{unix.O_WRONLY, "O_WRONLY"},
		{unix.O_RDWR | unix.O_CLOEXEC, "O_RDWR|O_CLOEXEC"},
		{unix.O_ACCMODE, "O_ACCMODE"},
		{unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC, "O_WRONLY|O_CREAT|O_TRUNC"},
		{unix.O_SYNC, "O_RDONLY|O_SYNC"},
		{unix.O_DSYNC, "O_RDONLY|O_DSYNC"},
		{unix.O_TMPFILE | unix.O_RDWR, "O_RDWR|O_TMPFILE"},
		{unix.O_DIRECTORY, "O_RDONLY|O_DIRECTORY"},
		{unix.O_PATH | unix.O_NOFOLLOW, "O_RDONLY|O_NOFOLLOW|O_PATH"},
		{kernelLargefile | unix.O_NOATIME | unix.O_DIRECT, "O_RDONLY|O_DIRECT|O_LARGEFILE|O_NOATIME"},
		{1 << 40, "O_RDONLY|020000000000000"},
		{unix.O_CREAT | 1<<40 | 1<<63, "O_RDONLY|O_CREAT|01000000020000000000000"},
	} {
		if got := string(tt.flags.AppendText(nil)); got != tt.want {
			t.Errorf("text of %#o: %s, want %s", uint64(tt.flags), got, tt.want)
		}
		if got := tt.flags.Any().([]string); !slices.Equal(got, strings.Split(tt.want, "|")) {
			t.Errorf("Any of %#o = %q, want %s", uint64(tt.flags), got, tt.want)
		}
	}
}

// TestParseOpenFlag expects that every rendered name can be parsed and yields the same bits.
func TestParseOpenFlag(t *testing.T) {
	for _, f := range openFlags {
		for _, name := range []string{f.name, strings.ToLower(f.name), strings.TrimPrefix(f.name, "O_")} {
			bits, access, err := ParseOpenFlag(name)
			if err != nil || access || bits != f.bits {
				t.Errorf("ParseOpenFlag(%s) = %#o, %v, %v, want %#o, false", name, bits, access, err, f.bits)
			}
		}
		flags := OpenFlags(f.bits)
		if got := string(flags.AppendText(nil)); got != "O_RDONLY|"+f.name {
			t.Errorf("text of %#o: %s, want O_RDONLY|%s", f.bits, got, f.name)
		}
	}
	for want, name := range accessModes {
		bits, access, err := ParseOpenFlag(name)
		if err != nil || !access || bits != uint64(want) {
			t.Errorf("ParseOpenFlag(%s) = %#o, %v, %v, want %#o, true", name, bits, access, err, want)
		}
	}
	for _, name := range []string{"", "O_", "O_NOTHING", "O_CREAT|O_EXCL"} {
		if _, _, err := ParseOpenFlag(name); err == nil {
			t.Errorf("ParseOpenFlag(%q) succeeds, want an error", name)
		}
	}
}

func TestHasMode(t *testing.T) {
	for flags, want := range map[OpenFlags]bool{
		0: false, unix.O_CREAT: true, unix.O_DIRECTORY: false, unix.O_TMPFILE: true,
		unix.O_TMPFILE &^ unix.O_DIRECTORY: false,
	} {
		if got := flags.HasMode(); got != want {
			t.Errorf("HasMode of %s = %v, want %v", flags.AppendText(nil), got, want)
		}
	}
}

func TestFileMode(t *testing.T) {
	for bits, want := range map[uint32]string{
		0: "0000", 0o7: "0007", 0o70: "0070", 0o644: "0644", 0o777: "0777", 0o4755: "4755", 0o177777: "177777",
	} {
		m := FileMode{bits, true}
		if got := string(m.AppendText(nil)); got != want {
			t.Errorf("text of mode %#o: %s, want %s", bits, got, want)
		}
	}
}

func TestAppendPath(t *testing.T) {
	for _, tt := range []struct {
		name, names string
		truncated   bool
		want        string
	}{
		{"root", "", false, "/"},
		{"one name", "etc\x00", false, "/etc"},
		{"several", "file\x00dir\x00top\x00", false, "/top/dir/file"},
		{"control bytes", "\xff\x1b\x00a b\x00", false, "/a b/\xff\x1b"},
		{"truncated", "file\x00dir\x00", true, ".../dir/file"},
		{"truncated, no names", "", true, "..."},
		{"empty name", "a\x00\x00b\x00", false, "/b//a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendPath([]byte("x"), []byte(tt.names), tt.truncated)); got != "x"+tt.want {
				t.Errorf("AppendPath(%q) = %q, want %q", tt.names, got, "x"+tt.want)
			}
		})
	}
}

// FuzzAppendPath expects that each name occurs exactly once in the path.
func FuzzAppendPath(f *testing.F) {
	f.Add([]byte("file\x00dir\x00"), false)
	f.Add([]byte("\x00"), true)
	f.Fuzz(func(t *testing.T, names []byte, truncated bool) {
		if bytes.ContainsRune(names, '/') {
			return
		}
		names = append(names, 0)
		path := string(AppendPath(nil, names, truncated))
		got := strings.Split(strings.TrimPrefix(path, "..."), "/")
		want := strings.Split(string(names), "\x00")
		slices.Reverse(want)
		if !slices.Equal(got, want) {
			t.Fatalf("AppendPath(%q) = %q, want names %q", names, path, want)
		}
	})
}
