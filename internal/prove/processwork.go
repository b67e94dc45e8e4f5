package prove

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func processProofs() []proof {
	return []proof{
		{tool: "execsnoop", job: "exec", n: many, does: "start a program with two arguments", args: "-P {pid} --columns +cwd,command,cpu", columns: "time pid tid uid comm cgroup_id ret ppid parent_comm args args_truncated file exe cwd", whole: "--columns pid", hook: "exec"},
		{tool: "exitsnoop", job: "exec", n: many, does: "start a program that exits with 3", args: "--comm {program}", columns: "pid tid uid comm cgroup_id age_ns ppid parent_comm exit_code core_dumped result", alone: true, whole: "-T", hook: "exit"},
		{tool: "naptime", job: "nap", n: many, does: "sleep for 1000 ns and more", args: "--tid {tid}"},
		{tool: "sigsnoop", job: "signal", n: many, does: "send SIGWINCH to itself", args: "--pid {pid} -s WINCH", whole: "--columns pid", hook: "signal"},
		{tool: "setuids", job: "setuid", n: many, does: "set the file system user ID to what it is", args: "--pid {pid}"},
		{tool: "capable", job: "capable", n: many, does: "call that needs CAP_SYS_TIME and changes nothing", args: "--pid {pid}", own: "cap", whole: "--columns pid", hook: "check"},
	}
}

func processJobs() map[string]job {
	return map[string]job{
		"exec":    {prepare: prepareProgram, run: execs},
		"nap":     {run: naps},
		"signal":  {run: signals},
		"setuid":  {run: setuids},
		"capable": {run: capables},
	}
}

// programName returns the name of the program of this workload, which no other process has.
func programName(w *worker) string { return strings.Replace(w.facts["comm"], "prove", "p", 1) }

func prepareProgram(w *worker) error {
	w.facts["program"] = programName(w)
	return writeProgram(w.path(programName(w)))
}

func execs(w *worker) error {
	path := w.path(programName(w))
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	argv := []string{path, "first argument", "second\targument"}
	for range w.n {
		var pid int
		s := during(func() { pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{}) })
		if err != nil {
			return err
		}
		var status unix.WaitStatus
		life := span{begin: s.begin}
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
			return err
		}
		life.end = now()
		w.want(row{
			// exec continues after it has let its parent go on, so only the end of the child is later for certain.
			"time": life, "pid": pid, "tid": pid, "comm": programName(w), "ppid": w.common["pid"], "parent_comm": w.common["comm"], "ret": 0,
			"args": argv, "args_truncated": false, "file": path, "exe": path, "cwd": cwd,
			"age_ns": atMost(life.ns()), "exit_code": status.ExitStatus(), "core_dumped": false, "result": fmt.Sprintf("code %d", status.ExitStatus()),
		})
	}
	return nil
}

func naps(w *worker) error {
	for i := range w.n {
		want := int64(1000 + i)
		var err error
		r := w.timed("", func() { err = unix.Nanosleep(&unix.Timespec{Nsec: want}, nil) })
		if err != nil && err != unix.EINTR {
			return err
		}
		r["request_ns"], r["syscall"], r["absolute"], r["ppid"] = want, "nanosleep", false, os.Getppid()
		w.want(r)
	}
	return nil
}

func signals(w *worker) error {
	pid, tid := unix.Getpid(), unix.Gettid()
	for range w.n {
		var err error
		r := w.timed("", func() { err = unix.Tgkill(pid, tid, unix.SIGWINCH) })
		if err != nil {
			return err
		}
		r["from_kernel"], r["sig"], r["signal"], r["target_pid"], r["target_tid"] = false, int(unix.SIGWINCH), "SIGWINCH", pid, tid
		r["target_comm"], r["to_process"], r["si_code"] = w.common["comm"], false, -6
		w.want(r)
	}
	return nil
}

func setuids(w *worker) error {
	uid := unix.Getuid()
	for range w.n {
		r := w.timed("", func() { _, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0) })
		r["ret"], r["syscall"], r["kind"], r["args"] = uid, "setfsuid", "user", fmt.Sprintf("uid=%d", uid)
		for _, k := range []string{"real_id", "effective_id", "saved_id", "fs_id"} {
			r["old_"+k], r["new_"+k] = uid, uid
		}
		w.want(r)
	}
	return nil
}

// capables sets neither time nor time zone, which needs CAP_SYS_TIME all the same.
func capables(w *worker) error {
	id, err := inodeOf("/proc/self/ns/user")
	if err != nil {
		return err
	}
	for range w.n {
		r := w.timed("", func() { _, _, _ = unix.RawSyscall(unix.SYS_SETTIMEOFDAY, 0, 0, 0) })
		r["cap"], r["capability"], r["verdict"], r["ret"], r["userns"] = unix.CAP_SYS_TIME, "CAP_SYS_TIME", "allow", 0, id
		w.want(r)
	}
	return nil
}
