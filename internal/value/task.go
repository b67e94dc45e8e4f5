package value

// Task is struct task_info of task.bpf.h: the head of every event that belongs
// to a task.
type Task struct {
	Time     Time   `json:"time" col:"TIME,width=8" help:"when the event was sent, wall time (CLOCK_BOOTTIME at the event, set to wall time as it is read)" btf:"time_ns"`
	CgroupID uint64 `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"id of the task's cgroup: inode of its directory"`
	PID      uint32 `json:"pid" col:"PID,width=7" help:"process id (tgid) in the initial PID namespace"`
	TID      uint32 `json:"tid" col:"TID,width=7" help:"thread id in the initial PID namespace"`
	UID      uint32 `json:"uid" col:"UID,width=6" help:"real user id in the initial user namespace"`
	Comm     Comm   `json:"comm" col:"COMM,width=16" help:"name of the thread"`
	_        uint32
}

// Head returns the task's part of a row that has it embedded.
func (t *Task) Head() *Task { return t }

// Stamp returns the moment of the event.
func (t *Task) Stamp() *Time { return &t.Time }
