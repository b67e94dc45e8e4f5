package prove

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func objectProofs() []proof {
	return []proof{
		{tool: "mountsnoop", job: "unmount", n: many, does: "unmount a path that does not exist", args: "--pid {pid}"},
		{tool: "shmsnoop", job: "shm", n: many / 4, does: "create, attach, detach and remove a memory segment", args: "--pid {pid}", pairs: "syscall SHMAT SHMDT address"},
		{tool: "undump", job: "messages", n: many, does: "receive 20 bytes from a UNIX socket", args: "--tid {tid}"},
		{tool: "sofdsnoop", job: "descriptors", n: many / 2, does: "send a descriptor and receive it", args: "--tid {tid}", pairs: "action SEND RECV"},
		{tool: "files", job: "hold files", n: 200, does: "hold an open file", args: "--pid {pid} -o", own: "path", list: true},
		{tool: "maps", job: "hold maps", n: 200, does: "hold a mapping of a file", args: "--pid {pid}", own: "path", list: true},
		{tool: "sockets", job: "hold sockets", n: 200, does: "hold a listening socket", args: "--pid {pid}", own: "netns", list: true},
		{tool: "tasks", job: "task", does: "run, with these arguments", args: "--pid {pid} --columns +args", list: true},
	}
}

func objectJobs() map[string]job {
	return map[string]job{
		"unmount":      {run: unmounts},
		"shm":          {run: segments},
		"messages":     {run: messages},
		"descriptors":  {run: descriptors},
		"hold files":   {run: holdFiles},
		"hold maps":    {run: holdMaps},
		"hold sockets": {prepare: ownNetwork, run: holdSockets},
		"task":         {run: ownTask},
	}
}

func unmounts(w *worker) error {
	path := w.path("missing")
	id, err := inodeOf("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	for range w.n {
		r := w.timed("latency_ns", func() { err = unix.Unmount(path, 0) })
		r["syscall"], r["operation"], r["target"], r["mntns"], r["ppid"] = "umount2", "UMOUNT", path, id, unix.Getppid()
		w.want(errorOf(r, 0, err))
	}
	return nil
}

// segments calls the kernel itself: the wrappers of the package unix make further calls.
func segments(w *worker) error {
	const size = 8192
	for range w.n {
		var id, address uintptr
		var errs [4]unix.Errno
		r := w.timed("", func() {
			id, _, errs[0] = unix.RawSyscall(unix.SYS_SHMGET, unix.IPC_PRIVATE, size, unix.IPC_CREAT|0o600)
		})
		w.want(r.with(row{"syscall": "SHMGET", "size_bytes": size, "shm_id": id, "shm_key": "0x0"}))
		r = w.timed("", func() { address, _, errs[1] = unix.RawSyscall(unix.SYS_SHMAT, id, 0, 0) })
		w.want(r.with(row{"syscall": "SHMAT", "shm_id": id, "address": fmt.Sprintf("%#x", address)}))
		r = w.timed("", func() { _, _, errs[2] = unix.RawSyscall(unix.SYS_SHMCTL, id, unix.IPC_RMID, 0) })
		w.want(r.with(row{"syscall": "SHMCTL", "shm_id": id, "command": "IPC_RMID"}))
		r = w.timed("", func() { _, _, errs[3] = unix.RawSyscall(unix.SYS_SHMDT, address, 0, 0) })
		w.want(r.with(row{"syscall": "SHMDT", "address": fmt.Sprintf("%#x", address)}))
		for _, errno := range errs {
			if errno != 0 {
				return fmt.Errorf("use a memory segment: %w", errno)
			}
		}
	}
	return nil
}

func (r row) with(more row) row {
	for k, v := range more {
		r[k] = v
	}
	return r
}

func socketPair(w *worker) ([2]int, [2]uint64, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fds, [2]uint64{}, fmt.Errorf("create sockets: %w", err)
	}
	w.later(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	var st [2]unix.Stat_t
	err = errors.Join(unix.Fstat(fds[0], &st[0]), unix.Fstat(fds[1], &st[1]))
	return fds, [2]uint64{st[0].Ino, st[1].Ino}, err
}

func messages(w *worker) error {
	fds, inodes, err := socketPair(w)
	if err != nil {
		return err
	}
	buffer := make([]byte, 64)
	for i := range w.n {
		text := fmt.Sprintf("message number %05d", i)
		if _, err := unix.Write(fds[0], []byte(text)); err != nil {
			return err
		}
		r := w.timed("", func() { _, err = unix.Read(fds[1], buffer) })
		w.want(r.with(row{"bytes": len(text), "data": text, "fd": fds[1], "socket_inode": inodes[1], "truncated": false}))
	}
	return err
}

func descriptors(w *worker) error {
	fds, inodes, err := socketPair(w)
	if err != nil {
		return err
	}
	path := w.path("sent")
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	control, buffer := unix.UnixRights(fd), make([]byte, 64)
	for range w.n {
		r := w.timed("", func() { err = unix.Sendmsg(fds[0], []byte("x"), control, nil, 0) })
		if err != nil {
			return err
		}
		w.passed(r, "SEND", fds[0], inodes[0], fd)
		got := make([]byte, 1)
		r = w.timed("", func() { _, _, _, _, err = unix.Recvmsg(fds[1], got, buffer, unix.MSG_CMSG_CLOEXEC) })
		if err != nil {
			return err
		}
		all, err := unix.ParseSocketControlMessage(buffer[:unix.CmsgSpace(4)])
		if err != nil || len(all) == 0 {
			return fmt.Errorf("no descriptor received: %v", err)
		}
		copies, err := unix.ParseUnixRights(&all[0])
		if err != nil {
			return err
		}
		w.passed(r, "RECV", fds[1], inodes[1], copies[0])
		unix.Close(copies[0])
	}
	return nil
}

func (w *worker) passed(r row, action string, socket int, inode uint64, fd int) {
	inodeColumns(r, w.path("sent"))
	w.want(r.with(row{"action": action, "socket_fd": socket, "socket_inode": inode, "fd": fd, "path": w.path("sent"), "deleted": false}))
}

func holdFiles(w *worker) error {
	for i := range w.n {
		path := w.path(fmt.Sprintf("held%d", i))
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		if _, err := unix.Write(fd, make([]byte, i)); err != nil {
			return err
		}
		r := row{"path": path, "fd": fd, "use": "fd", "filetype": "reg", "size_bytes": i, "position": i, "links": 1, "deleted": false}
		inodeColumns(r, path)
		w.holds(r)
	}
	return nil
}

// holds notes an object of the process. Lists name the thread-group leader.
func (w *worker) holds(r row) {
	r["pid"], r["uid"], r["cgroup_id"] = w.common["pid"], w.common["uid"], w.common["cgroup_id"]
	w.sum(r)
}

func holdMaps(w *worker) error {
	path := w.path("mapped")
	const size = 3 * 4096
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, size); err != nil {
		return err
	}
	for i := range w.n {
		protection, perms := unix.PROT_READ, "r--s" // neighbours differ, so that the kernel does not merge them
		if i%2 == 1 {
			protection, perms = unix.PROT_READ|unix.PROT_WRITE, "rw-s"
		}
		if _, err := unix.Mmap(fd, 4096, size-4096, protection, unix.MAP_SHARED); err != nil {
			return err
		}
		r := row{"path": path, "size_bytes": size - 4096, "offset": 4096, "perms": perms, "kind": "file"}
		inodeColumns(r, path)
		w.holds(r)
	}
	return nil
}

// ownTask notes the process itself.
func ownTask(w *worker) error {
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		return err
	}
	nice, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Getpid())
	if err != nil {
		return err
	}
	pidns, err := inodeOf("/proc/self/ns/pid")
	if err != nil {
		return err
	}
	const zero = 20 // the system call returns 20 - nice
	w.sum(row{
		"pid": w.common["pid"], "tid": w.common["pid"], "uid": w.common["uid"], "cgroup_id": w.common["cgroup_id"], "comm": strings.TrimSpace(string(comm)),
		"ppid": unix.Getppid(), "nice": zero - nice, "kernel": false, "args": os.Args, "pidns": pidns,
		"age_ns": row{"min": now() - w.prepared}, "cpu_ns": row{"min": 1},
	})
	return nil
}

func holdSockets(w *worker) error {
	for i := range w.n {
		fd, port, err := tcpSocket(serverHost, 1+i)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		w.holds(row{
			"inode": st.Ino, "state": "LISTEN", "protocol": "tcp", "kind": "stream", "laddr": serverHost, "lport": port, "fd": fd,
			"netns": w.namespace(), "backlog": 0, "backlog_max": 1 + i, "holders": 1,
		})
	}
	return nil
}
