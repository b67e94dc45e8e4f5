package system

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

const passwdFile = `root:x:0:0:root:/root:/bin/bash
# a comment without seven fields
toor:x:0:0:another root:/other:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
broken:x:many:1::/:/bin/sh
+::::::
root:x:9:9:another user with this name:/:/bin/sh
1000:x:4242:4242:a name that is a number:/home/1000:/bin/sh
max:x:4294967295:1::/:/bin/sh
over:x:4294967296:1::/:/bin/sh
last:x:7:7::/home/last:/bin/sh`

func TestUsersName(t *testing.T) {
	users := NewUsers(tree(t, map[string]string{"etc/passwd": passwdFile}))
	for uid, want := range map[uint32]string{
		0: "root", 65534: "nobody", 4242: "1000", 4294967295: "max", 7: "last", 9: "root", 1: "",
	} {
		if got, ok := users.Name(uid); got != want || ok != (want != "") {
			t.Errorf("Name(%d) = %q, %v; want %q", uid, got, ok, want)
		}
	}
}

func TestUsersUID(t *testing.T) {
	users := NewUsers(tree(t, map[string]string{"etc/passwd": passwdFile}))
	for name, want := range map[string]uint32{
		"root": 0, "toor": 0, "last": 7, "1000": 4242, "1001": 1001, "4294967295": 4294967295,
	} {
		if got, err := users.UID(name); got != want || err != nil {
			t.Errorf("UID(%q) = %d, %v; want %d", name, got, err, want)
		}
	}
	for _, name := range []string{"", "nosuch", "-1", "4294967296", "broken", "over", "1e3"} {
		if got, err := users.UID(name); !errors.Is(err, ErrNoUser) {
			t.Errorf("UID(%q) = %d, %v; want ErrNoUser", name, got, err)
		}
	}
}

// TestUsersReadOnce expects that /etc/passwd is read at the first lookup, and only once.
func TestUsersReadOnce(t *testing.T) {
	root := t.TempDir()
	users := NewUsers(root)
	add(t, root, "etc/passwd", passwdFile)
	if name, _ := users.Name(0); name != "root" {
		t.Errorf("file written after NewUsers: uid 0 is %q, want root", name)
	}
	check(t, os.Remove(filepath.Join(root, "etc/passwd")))
	if name, _ := users.Name(7); name != "last" {
		t.Errorf("file removed after the first read: uid 7 is %q, want last", name)
	}
}

func TestUsersWithoutFile(t *testing.T) {
	users := NewUsers(t.TempDir())
	if name, ok := users.Name(0); ok {
		t.Errorf("Name(0) = %q without /etc/passwd", name)
	}
	if uid, err := users.UID("12"); uid != 12 || err != nil {
		t.Errorf("UID(12) = %d, %v", uid, err)
	}
}

func TestUsersLive(t *testing.T) {
	if name, _ := NewUsers("").Name(0); name != "root" {
		t.Errorf("UID 0 of this machine is %q, want root", name)
	}
}
