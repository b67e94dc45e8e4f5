package value

import "strconv"

// Softirq is the number of a softirq. Its name is that of /proc/softirqs in lower case, or [N].
type Softirq uint32

// softirqs has the names. The kernel has not changed the numbers since 2.6.30.
func softirqs() []string {
	return []string{"hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu"}
}

func (v *Softirq) name() string {
	if names := softirqs(); int(*v) < len(names) {
		return names[*v]
	}
	return "[" + strconv.Itoa(int(*v)) + "]"
}

func (v *Softirq) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *Softirq) AppendJSON(b []byte) []byte { return AppendString(b, v.name()) }
func (v *Softirq) Any() any                   { return v.name() }
func (v *Softirq) Schema() Schema             { return Schema{Type: "string"} }
