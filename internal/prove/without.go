package prove

// reasonOf returns why a tool has no proof.
func reasonOf(name string) string {
	if reason := withoutProof()[name]; reason != "" {
		return reason
	}
	return "no proof has been written for this tool"
}

// withoutProof returns the reasons why tools have no proof. A workload needs neither programs of others nor
// changes of the machine.
func withoutProof() map[string]string {
	return map[string]string{
		"bashreadline":   "needs a shell with readline and a user",
		"biolatpcts":     "shows all requests of a disk, also those of others",
		"biopattern":     "shows all requests of a disk, also those of others",
		"bpflist":        "no workload loads BPF programs yet",
		"bpftop":         "no workload loads BPF programs yet",
		"compactsnoop":   "compaction needs memory that is short or fragmented",
		"cpufreq":        "the kernel selects the frequency",
		"cpuunclaimed":   "shows all CPUs, which others use too",
		"cpuwalk":        "shows all CPUs, which others use too",
		"criticalstat":   "the kernel decides how long interrupts are disabled",
		"dbslower":       "needs a database server",
		"dbstat":         "needs a database server",
		"dcstat":         "no workload looks up names of known state in the cache yet",
		"deadlock":       "needs a program with mutexes of libc; the workload is a Go program without C libraries",
		"drsnoop":        "direct reclaim needs memory that is short",
		"funcinterval":   "needs a function as argument, whose calls by others it shows too",
		"inject":         "makes calls fail, which is not harmless",
		"javagc":         "needs a JVM",
		"klockstat":      "the kernel's use of its locks depends on its version",
		"kvmexit":        "needs a virtual machine",
		"llcstat":        "cache misses depend on the processor and on other tasks",
		"loads":          "shows load averages of the whole machine",
		"mdflush":        "needs a RAID array",
		"mptcpify":       "changes sockets of other programs",
		"netqtop":        "needs a network device with queues; the loopback device has none",
		"numamove":       "the kernel decides when it moves pages",
		"numasched":      "needs a machine with several NUMA nodes",
		"oomkill":        "needs memory that is exhausted",
		"packetsnoop":    "no workload with known packets yet; tcplife and tcptop prove bytes",
		"ppchcalls":      "needs a PowerPC machine",
		"rdmaucma":       "needs an RDMA device",
		"readahead":      "the kernel decides which pages it reads ahead",
		"resettrace":     "resets tracing of others",
		"runqlen":        "shows run queues of the whole machine",
		"seccompprofile": "counts what syscount proves, without a filter by thread",
		"slabratetop":    "shows allocations of the whole kernel",
		"softirqslower":  "shows interrupts of the whole machine",
		"ssllatency":     "needs OpenSSL; the workload is a Go program without C libraries",
		"sslsnoop":       "needs OpenSSL; the workload is a Go program without C libraries",
		"swapin":         "needs memory that is swapped out",
		"tcpcong":        "needs a connection that loses packets",
		"throttletop":    "needs a cgroup with a limit of CPU time, whose controller the workload would have to enable",
		"tplist":         "lists tracepoints of the kernel; there is no workload",
		"ucalls":         "needs the runtime of a language",
		"uflow":          "needs the runtime of a language",
		"ugc":            "needs the runtime of a language",
		"uobjnew":        "needs the runtime of a language",
		"ustat":          "needs the runtime of a language",
		"uthreads":       "needs the runtime of a language",
		"virtiostat":     "shows virtio queues of the whole machine",
		"wqlat":          "shows work queues of the whole machine",
		"writeback":      "the kernel decides how many pages it writes at once",
	}
}
