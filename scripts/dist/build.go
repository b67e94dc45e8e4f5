package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// build builds the programs for all architectures, as `make` does.
func (r *release) build() error {
	tmp, err := os.MkdirTemp("", "corescope-dist")
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	defer os.RemoveAll(tmp)
	r.programs = map[string]map[string][]byte{}
	for _, arch := range architectures {
		dir := filepath.Join(tmp, arch) + "/"
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+r.version.String(),
			"-o", dir, "./cmd/corescope", "./cmd/corescope-agent")
		cmd.Dir = r.root
		// The levels of architectures and experiments of the environment would change the result.
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFLAGS=", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build for %s: %w: %s", arch, err, out)
		}
		programs := map[string][]byte{}
		for _, name := range []string{"corescope", "corescope-agent"} {
			if programs[name], err = os.ReadFile(dir + name); err != nil {
				return fmt.Errorf("build for %s: %w", arch, err)
			}
		}
		r.programs[arch] = programs
	}
	return nil
}
