package uthreads

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/languagetest"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

func self(more ...string) []string { return append(more, "--pid", fmt.Sprint(os.Getpid())) }

func isJava(r tooltest.Row) bool { return r.Str("kind") != "pthread" }

// TestJava starts and stops threads of Java.
func TestJava(t *testing.T) {
	lib := languagetest.Open(t, "java", "hotspot:thread__start", "hotspot:thread__stop")
	var tid int
	for _, args := range [][]string{self(), self("-l", "java")} {
		res := tooltest.JSON(t, Tool, args, func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			tid = unix.Gettid()
			lib.Call("hotspot:thread__start", native.Call{Args: [7]uint64{languagetest.Name("worker and more"), 6, 17, 1234, 1}})
			lib.Call("hotspot:thread__stop", native.Call{Args: [7]uint64{languagetest.Name("other"), 5, 18, 1234, 0}})
		})
		var got []string
		for _, r := range res.Where(isJava) {
			got = append(got, fmt.Sprint(r.Str("kind"), r.Num("java_id"), r.Num("native_id"), r.Str("ids"), r.Num("is_daemon"), r.Str("description")))
		}
		ids := func(id int) string { return fmt.Sprintf("R=%d/N=%d", id, tid) }
		want := []string{
			fmt.Sprint("start", 17.0, float64(tid), ids(17), 1.0, "worker"), fmt.Sprint("stop", 18.0, float64(tid), ids(18), 0.0, "other"),
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: rows %q, want %q", args, got, want)
		}
	}
}

// TestThreads compares with a program that creates threads, which print their IDs.
func TestThreads(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skipf("there is no C compiler: %v", err)
	}
	dir := t.TempDir()
	source := `
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>
void *work(void *arg)
{
	*(int *)arg = gettid();
	return NULL;
}
int main(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	int ids[3];

	setvbuf(stdout, NULL, _IONBF, 0);
	puts("ready");
	getchar();
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 1UL << 60); /* this thread cannot be created */
	if (!pthread_create(&thread, &attr, work, &ids[0]))
		return 1;
	for (int i = 0; i < 3; i++) {
		pthread_create(&thread, NULL, work, &ids[i]);
		pthread_join(thread, NULL);
		printf("%d\n", ids[i]);
	}
	return 0;
}`
	if err := os.WriteFile(dir+"/threads.c", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-O0", "-rdynamic", "-pthread", "-o", dir+"/threads", dir+"/threads.c").CombinedOutput(); err != nil {
		t.Fatalf("compile: %v: %s", err, out)
	}
	res, lines := languagetest.Run(t, Tool, nil, dir+"/threads")
	var ids []string
	for _, r := range res.Events {
		ids = append(ids, strconv.Itoa(int(r.Num("native_id"))))
		if r.Str("kind") != "pthread" || r.Num("routine") == 0 && r.Str("routine") == "" || r.Str("description") == "" || r.Has("java_id") {
			t.Errorf("row %v", r)
		}
	}
	if !slices.Equal(ids, lines) {
		t.Errorf("threads %q, the program created %q: %v", ids, lines, res.Events)
	}
}

// TestText checks the header of BCC.
func TestText(t *testing.T) {
	lib := languagetest.Open(t, "java", "hotspot:thread__start")
	out := tooltest.Text(t, Tool, self("-l", "java"), func() {
		lib.Call("hotspot:thread__start", native.Call{Args: [7]uint64{languagetest.Name("worker"), 6, 17, 1234, 1}})
	})
	head, row, _ := strings.Cut(out, "\n")
	if strings.Join(strings.Fields(head), " ") != "TIME ID TYPE DESCRIPTION" || !strings.HasSuffix(strings.TrimSpace(row), "start    worker") {
		t.Errorf("text is %q", out)
	}
}
