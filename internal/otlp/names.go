// Package otlp sends metrics, events (as log records) and profiles to a server that speaks OTLP over
// HTTP, such as the OpenTelemetry Collector. Names follow the semantic conventions where there is one.
package otlp

// AttributeName returns the name of the attribute for a column: that of the semantic conventions, or
// corescope.COLUMN. inPod tells whether the container is in a Kubernetes pod.
func AttributeName(column string, inPod bool) string {
	switch column {
	case "pid":
		return "process.pid"
	case "tid":
		return "thread.id"
	case "ppid":
		return "process.parent_pid"
	case "comm": // the name of a thread, which is not always that of its program
		return "thread.name"
	case "exe":
		return "process.executable.path"
	case "args":
		return "process.command_args"
	case "cwd":
		return "process.working_directory"
	case "uid":
		return "process.user.id"
	case "user":
		return "process.user.name"
	case "cgroup":
		return "process.linux.cgroup"
	case "container_id":
		return "container.id"
	case "container":
		if inPod {
			return "k8s.container.name"
		}
		return "container.name"
	case "pod":
		return "k8s.pod.name"
	case "pod_uid":
		return "k8s.pod.uid"
	case "namespace":
		return "k8s.namespace.name"
	case "laddr":
		return "network.local.address"
	case "lport":
		return "network.local.port"
	case "raddr":
		return "network.peer.address"
	case "rport":
		return "network.peer.port"
	case "disk":
		return "system.device"
	case "path":
		return "file.path"
	case "inode":
		return "file.inode"
	case "cpu":
		return "cpu.logical_number"
	case "errno":
		return "error.type"
	case "stack":
		return "code.stacktrace"
	}
	return "corescope." + column
}
