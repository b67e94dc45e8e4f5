package opensnoop

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestCgroup opens files inside a cgroup, below it and outside.
func TestCgroup(t *testing.T) {
	for _, hierarchy := range []string{"cgroup2", "memory"} {
		t.Run(hierarchy, func(t *testing.T) {
			name := fmt.Sprintf("corescope-test-%d", os.Getpid())
			below := tooltest.Cgroup(t, hierarchy, name+"/below")
			inside := tooltest.Cgroup(t, hierarchy, name)
			sibling := tooltest.Cgroup(t, hierarchy, name+"-sibling")
			res := tooltest.JSON(t, Tool, []string{"--cgroup", inside, "--path", "*.cgroup-test", "--columns", "+cgroup"}, func() {
				for _, dir := range []string{inside, below, sibling} {
					run(t, tooltest.InCgroup(dir, "/bin/cat", "/"+dir[len(dir)-6:]+".cgroup-test"))
				}
			})
			if len(res.Events) != 2 {
				t.Fatalf("%d rows, want those of the cgroup and its child: %v", len(res.Events), res.Events)
			}
			for i, dir := range []string{inside, below} {
				var st unix.Stat_t
				if err := unix.Stat(dir, &st); err != nil {
					t.Fatal(err)
				}
				if r := res.Events[i]; uint64(r.Num("cgroup_id")) != st.Ino || !strings.HasSuffix(dir, r.Str("cgroup")) || r.Str("comm") != "cat" {
					t.Errorf("row of %s (%d): %v", dir, st.Ino, r)
				}
			}
		})
	}
}

func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	// cat fails, because the file does not exist.
	if err := cmd.Run(); err == nil {
		t.Errorf("%v opened a nonexistent file", cmd.Args)
	}
}

// TestContainer selects a container by its cgroup, and checks its name in rows of tasks that have
// exited.
func TestContainer(t *testing.T) {
	tooltest.AnyAttachType(t)
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, hierarchy := range []string{"cgroup2", "memory"} {
		dir := tooltest.Cgroup(t, hierarchy, "docker/"+id)
		res := tooltest.JSON(t, Tool, []string{"--path", "*.container-test", "--columns", "path,container_id"}, func() {
			run(t, tooltest.InCgroup(dir, "/bin/cat", "/x.container-test"))
		})
		if len(res.Events) != 1 {
			t.Fatalf("%d rows, want 1", len(res.Events))
		}
		if res.Events[0].Str("container_id") == id {
			filterByContainer(t, dir, id[:12])
			return
		}
	}
	t.Error("no row of any hierarchy has the container ID")
}

func filterByContainer(t *testing.T, dir, id string) {
	t.Helper()
	res := tooltest.JSON(t, Tool, []string{"--container", id, "--path", "*.container-test"}, func() {
		run(t, tooltest.InCgroup(dir, "/bin/cat", "/in.container-test"))
		run(t, exec.Command("/bin/cat", "/out.container-test"))
	})
	if len(res.Events) != 1 || res.Events[0].Str("path") != "/in.container-test" {
		t.Errorf("rows of --container: %v", res.Events)
	}
}
