package system

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// ErrNoUser means that a user name is not in /etc/passwd.
var ErrNoUser = errors.New("no such user")

// Users translates between user names and UIDs, from /etc/passwd, which it reads once, at the first
// lookup. Users of a directory service are not in that file, so they have no names. Safe for
// concurrent use.
type Users struct {
	load func() passwd
}

type passwd struct {
	names map[uint32]string
	uids  map[string]uint32
	homes map[uint32]string
}

// NewUsers returns the users of the machine below root.
func NewUsers(root string) *Users {
	return &Users{load: sync.OnceValue(func() passwd {
		// A missing file is no error: minimal containers have none, and UIDs work without it.
		data, _ := readFile(filepath.Join("/", root, "etc/passwd"), 64<<20)
		return parsePasswd(string(data))
	})}
}

// Name returns the name of a user: the first one with this UID in /etc/passwd.
func (u *Users) Name(uid uint32) (string, bool) {
	name, ok := u.load().names[uid]
	return name, ok
}

// UID returns the UID of a user given by name or number. Like chown(1), it prefers a user whose
// name consists of these digits.
//
// Returns ErrNoUser.
func (u *Users) UID(nameOrNumber string) (uint32, error) {
	if uid, ok := u.load().uids[nameOrNumber]; ok {
		return uid, nil
	}
	uid, err := strconv.ParseUint(nameOrNumber, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("find user %q: %w", nameOrNumber, ErrNoUser)
	}
	return uint32(uid), nil
}

// home returns the home directory of a user, without the root.
func (u *Users) home(uid uint32) (string, bool) {
	home, ok := u.load().homes[uid]
	return home, ok
}

func parsePasswd(text string) passwd {
	p := passwd{map[uint32]string{}, map[string]uint32{}, map[uint32]string{}}
	for line := range strings.Lines(text) {
		field := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(field) != 7 || field[0] == "" {
			continue
		}
		uid, err := strconv.ParseUint(field[2], 10, 32)
		if err != nil {
			continue
		}
		p.add(field[0], uint32(uid), field[5])
	}
	return p
}

// add keeps the first entry of each name and UID, like getpwnam and getpwuid.
func (p passwd) add(name string, uid uint32, home string) {
	if _, ok := p.uids[name]; !ok {
		p.uids[name] = uid
	}
	if _, ok := p.names[uid]; !ok {
		p.names[uid], p.homes[uid] = name, home
	}
}
