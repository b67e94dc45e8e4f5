package main

import (
	"fmt"
	"regexp"
	"strconv"
)

// version is the version of the source: the latest tag and the commits since then.
type version struct {
	// base is MAJOR.MINOR.PATCH; pre is the kind and number of a pre-release, such as rc1.
	base, pre string
	// commits is the number of commits since the tag, hash that of the last one.
	commits int
	hash    string
}

var described = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-((?:alpha|beta|rc)\d+))?-(\d+)-g([0-9a-f]+)$`)

// parseVersion parses the output of git describe --long.
func parseVersion(text string) (version, error) {
	m := described.FindStringSubmatch(text)
	if m == nil {
		return version{}, fmt.Errorf("parse version %q: want a tag vMAJOR.MINOR.PATCH or vMAJOR.MINOR.PATCH-rcN, and -COMMITS-gHASH", text)
	}
	commits, err := strconv.Atoi(m[3])
	if err != nil {
		return version{}, fmt.Errorf("parse version %q: %w", text, err)
	}
	return version{base: m[1], pre: m[2], commits: commits, hash: m[4]}, nil
}

// String returns the version as a semantic version, which the programs print.
func (v version) String() string {
	s := v.base
	if v.pre != "" {
		s += "-" + v.pre
	}
	if v.commits > 0 {
		s += fmt.Sprintf("+git%d.%s", v.commits, v.hash)
	}
	return s
}

// deb is the version for dpkg: ~ sorts before the release, + after it.
func (v version) deb() string { return v.join("~", fmt.Sprintf("+git%d.%s", v.commits, v.hash)) }

// rpm is the version for RPM, where ^ sorts after the release and before the next one.
func (v version) rpm() string { return v.join("~", fmt.Sprintf("^git%d.%s", v.commits, v.hash)) }

// apk is the version for apk, which permits only numbers after its suffixes.
func (v version) apk() string { return v.join("_", fmt.Sprintf("_git%d", v.commits)) }

// arch is the version for pacman, which sorts letters that follow a number before the release.
func (v version) arch() string { return v.join("", fmt.Sprintf(".r%d.g%s", v.commits, v.hash)) }

func (v version) join(beforePre, since string) string {
	s := v.base
	if v.pre != "" {
		s += beforePre + v.pre
	}
	if v.commits > 0 {
		s += since
	}
	return s
}
