package value

// Task mirrors struct task_info of task.bpf.h, the first member of every event that belongs
// to a task.
type Task struct {
	Time     Time   `json:"time" col:"TIME,width=8" help:"wall time of the event (CLOCK_BOOTTIME at the event, converted to wall time in user space)" btf:"time_ns"`
	CgroupID uint64 `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"ID of the task's cgroup: inode number of its directory"`
	PID      uint32 `json:"pid" col:"PID,width=7" help:"process ID (thread-group ID) in the initial PID namespace"`
	TID      uint32 `json:"tid" col:"TID,width=7" help:"thread ID in the initial PID namespace"`
	UID      uint32 `json:"uid" col:"UID,width=6" help:"real user ID in the initial user namespace"`
	Comm     Comm   `json:"comm" col:"COMM,width=16" help:"name of the thread"`
	_        uint32
}

// Head returns the Task embedded in a row.
func (t *Task) Head() *Task { return t }

// Stamp returns the time of the event.
func (t *Task) Stamp() *Time { return &t.Time }
