package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestReadStrace(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	text := "7 write(1<pipe:[2]>, \"7\\n\", 2) = 2\n" +
		"7 read(0<pipe:[1]>,  <unfinished ...>\n" +
		"8 getpid() = 8\n" +
		"7 <... read resumed>\"\\n\", 1) = 1\n" +
		"7 openat(AT_FDCWD</tmp>, \"none\", O_RDONLY) = -1 ENOENT (No such file or directory)\n" +
		"8 write(4</tmp/f>, \"a) = 3\", 6 <unfinished ...>\n" +
		"7 --- SIGCHLD {si_signo=SIGCHLD} ---\n" +
		"8 <... write resumed>)              = ? ERESTARTSYS (To be restarted if SA_RESTART is set)\n" +
		"8 mmap(NULL, 4096, PROT_READ) = 0x7f00\n" +
		"8 exit_group(0)                     = ?\n" +
		"8 +++ exited with 0 +++\n"
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	calls, err := readStrace(log, 7)
	if err != nil {
		t.Fatal(err)
	}
	want := []call{
		{pid: 7, name: "openat", args: `AT_FDCWD</tmp>, "none", O_RDONLY`, ret: -1},
		{pid: 8, name: "write", args: `4</tmp/f>, "a) = 3", 6`, ret: -1},
		{pid: 8, name: "mmap", args: "NULL, 4096, PROT_READ", ret: 0x7f00},
		{pid: 8, name: "exit_group", args: "0", noReturn: true},
	}
	if !slices.Equal(calls, want) {
		t.Errorf("calls are\n%+v, want\n%+v", calls, want)
	}
	if !isOnRegularFile(calls[1]) || isOnRegularFile(call{args: "1<pipe:[2]>"}) || isOnRegularFile(call{args: "3</dev/null>"}) {
		t.Error("isOnRegularFile: only the first of the three is on a regular file")
	}
}

// A log without the release belongs to another process or is truncated.
func TestReadStraceWithoutRelease(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("8 getpid() = 8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if calls, err := readStrace(log, 7); err == nil {
		t.Errorf("no error, calls %v", calls)
	}
}

func TestOutside(t *testing.T) {
	for _, test := range []struct {
		figure figure
		want   bool
	}{
		{figure{ours: 10, reference: 10}, false},
		{figure{ours: 10, reference: 11}, true},
		{figure{ours: 10, reference: 11, slack: 1}, false},
		{figure{ours: 0, reference: 1000, slack: 20}, true},
	} {
		if got := test.figure.isOutside(); got != test.want {
			t.Errorf("%+v: outside is %v", test.figure, got)
		}
	}
}
