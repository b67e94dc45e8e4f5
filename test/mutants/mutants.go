package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// mutant is a change of the source that makes a tool wrong.
type mutant struct {
	tool  string
	fault string // what is wrong
	file  string
	old   string // occurs once, or the first one is replaced
	new   string
}

func (m *mutant) isC() bool { return filepath.Ext(m.file) != ".go" }

func (m *mutant) apply(text string) (string, error) {
	if !strings.Contains(text, m.old) {
		return "", fmt.Errorf("the text to change is missing: %q", m.old)
	}
	return strings.Replace(text, m.old, m.new, 1), nil
}

// in returns a mutant of each of these tools, with the change in a file that they share.
func in(fault, file, from, to string, tools ...string) []mutant {
	var all []mutant
	for _, t := range tools {
		all = append(all, mutant{t, fault, file, from, to})
	}
	return all
}

// of returns a mutant with a change in the BPF program of the tool.
func of(tool, fault, from, to string) mutant {
	return mutant{tool, fault, "tools/" + tool + "/" + tool + ".bpf.c", from, to}
}

// decoder returns a mutant with a change in the Go code of the tool.
func decoder(tool, fault, from, to string) mutant {
	return mutant{tool, fault, "tools/" + tool + "/" + tool + ".go", from, to}
}

func mutants() []mutant {
	const (
		events = "bpf/event.bpf.h"
		send   = "\tlong err = event_output(ctx, event, size, now_ns);\n"
		task   = "bpf/task.bpf.h"
		hist   = "bpf/hist.bpf.h"
		sock   = "bpf/sock.bpf.h"
		cache  = "bpf/pagecache.bpf.h"
		wanted = "\treturn !task_filter || task_wanted(task_current());"
	)
	var all []mutant
	add := func(more ...mutant) { all = append(all, more...) }
	add(in("one event in a thousand is dropped and not counted", events, send,
		"\tstatic __u64 n;\n\tlong err;\n\n\tif (__sync_fetch_and_add(&n, 1) % 1000 == 500)\n\t\treturn 0;\n\terr = event_output(ctx, event, size, now_ns);\n",
		"opensnoop", "statsnoop", "syncsnoop", "exitsnoop", "filegone", "fsslower", "naptime", "sigsnoop", "setuids", "capable", "tcplife",
		"tcpconnect", "tcpaccept", "tcptracer", "tcpdrop", "tcppktlat", "tcpstates", "bindsnoop", "solisten", "dnssnoop", "mountsnoop",
		"shmsnoop", "undump", "sofdsnoop", "trace", "dcsnoop", "ttysnoop", "fsnotifysnoop")...)
	add(in("one event in a thousand is sent twice", events, send,
		"\tstatic __u64 n;\n\tlong err = event_output(ctx, event, size, now_ns);\n\n\tif (__sync_fetch_and_add(&n, 1) % 1000 == 500)\n\t\tevent_output(ctx, event, size, now_ns);\n",
		"opensnoop", "naptime", "tcpconnect", "undump", "setuids")...)
	add(in("PID and TID are swapped", task, "\tt->pid = id >> 32;\n\tt->tid = id;", "\tt->pid = id;\n\tt->tid = id >> 32;",
		"opensnoop", "statsnoop", "syncsnoop", "filegone", "naptime", "sigsnoop", "setuids", "capable", "tcpaccept", "dnssnoop", "mountsnoop", "undump")...)
	add(in("all events have the time of the first", task, "\tt->time_ns = bpf_ktime_get_boot_ns();\n",
		"\tstatic __u64 first;\n\n\tif (!first)\n\t\tfirst = bpf_ktime_get_boot_ns();\n\tt->time_ns = first;\n",
		"opensnoop", "statsnoop", "naptime", "setuids", "undump", "filegone")...)
	add(in("the group instead of the user", task, "\tt->uid = bpf_get_current_uid_gid();", "\tt->uid = bpf_get_current_uid_gid() >> 32;",
		"opensnoop", "naptime", "setuids")...)
	add(in("another cgroup", task, "\tt->cgroup_id = task_current_cgroup_id();", "\tt->cgroup_id = task_current_cgroup_id() ^ 0x1000;",
		"opensnoop", "sigsnoop", "undump")...)
	add(in("the name is cut", task, "bpf_get_current_comm(t->comm, sizeof(t->comm))", "bpf_get_current_comm(t->comm, 8)",
		"opensnoop", "capable", "tcpaccept")...)
	add(in("the filter lets all tasks pass", task, wanted, "\treturn true;",
		"opensnoop", "statsnoop", "syncsnoop", "filegone", "setuids", "capable", "tcpaccept", "undump", "mountsnoop", "vfsstat", "syscount", "naptime")...)
	add(in("values are one bucket too high", hist, "\treturn shift * 16 + (x >> shift);", "\treturn shift * 16 + (x >> shift) + 1;",
		"fsdist", "biolatency", "cpudist", "runqlat")...)
	add(in("the sum of a histogram is in us", hist, "__sync_fetch_and_add(&slot->sum, value_ns * n);", "__sync_fetch_and_add(&slot->sum, value_ns / 1000 * n);",
		"fsdist", "biolatency", "cpudist")...)
	add(in("every value is counted twice", hist, "__sync_fetch_and_add(&slot->count, n);", "__sync_fetch_and_add(&slot->count, 2 * n);",
		"fsdist", "biolatency", "runqlat")...)
	add(in("added folios count as dirty", cache, "writeback_dirty_folio\", dirtied)", "mm_filemap_add_to_page_cache\", dirtied)",
		"cachestat", "cachetop")...)
	add(in("one value in a thousand is dropped and not counted", hist, "\t__u64 unit_ns = hist_unit_ns;\n",
		"\t__u64 unit_ns = hist_unit_ns;\n\tstatic __u64 dropped;\n\n\tif (__sync_fetch_and_add(&dropped, 1) % 1000 == 500)\n\t\treturn;\n", "tcprtt")...)
	add(in("the remote port has the wrong byte order", sock, "\tends->rport = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));",
		"\tends->rport = BPF_CORE_READ(sk, __sk_common.skc_dport);", "tcplife", "tcpconnect", "tcptop", "tcptracer", "tcppktlat")...)
	add(in("the local address is the remote one", sock, "addr_set_ipv4(&ends->laddr, BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr));",
		"addr_set_ipv4(&ends->laddr, BPF_CORE_READ(sk, __sk_common.skc_daddr));", "tcplife", "tcpaccept", "tcpstates")...)
	add(programs()...)
	add(decoders()...)
	return all
}

// programs returns mutants with changes in the programs of single tools.
func programs() []mutant {
	return []mutant{
		of("opensnoop", "wrong result", "\te->ret = ret;", "\te->ret = ret & 0xff;"),
		of("opensnoop", "the path is cut by a byte", "\te->path_len = len;", "\te->path_len = len - 1;"),
		of("opensnoop", "wrong mode", "\te->mode = call->mode;", "\te->mode = 0;"),
		of("statsnoop", "wrong result", "\te->ret = ret;", "\te->ret = -ret;"),
		of("syncsnoop", "latency in us", "e->latency_ns = bpf_ktime_get_ns() - b.ns;", "e->latency_ns = (bpf_ktime_get_ns() - b.ns) / 1000;"),
		of("syncsnoop", "latency 1000 times too long", "e->latency_ns = bpf_ktime_get_ns() - b.ns;", "e->latency_ns = (bpf_ktime_get_ns() - b.ns) * 1000;"),
		of("mountsnoop", "latency is a time", "e->latency_ns = bpf_ktime_get_ns() - b.ns;", "e->latency_ns = bpf_ktime_get_ns();"),
		of("mountsnoop", "the parent is the process itself", "e->ppid = BPF_CORE_READ(parent, tgid);", "e->ppid = BPF_CORE_READ(task, tgid);"),
		of("exitsnoop", "the age ends at another clock", "\te.age_ns = e.task.time_ns - BPF_CORE_READ(task, start_boottime);", "\te.age_ns = e.task.time_ns;"),
		of("exitsnoop", "the parent's thread instead of its process", "e.ppid = BPF_CORE_READ(parent, tgid);", "e.ppid = BPF_CORE_READ(parent, pid);"),
		of("execsnoop", "wrong parent", "\te->ppid = ppid;", "\te->ppid = ppid + 1;"),
		of("tcplife", "duration in us", "e->duration_ns = now_ns - c->start_ns;", "e->duration_ns = (now_ns - c->start_ns) / 1000;"),
		of("tcplife", "a FIN counts as a byte", "\treturn n && fin ? n - 1 : n;", "\treturn fin ? n : n;"),
		of("tcplife", "sent and received are swapped", "\te->tx_bytes = tx_bytes(tp, c->direction, tcp_state);\n\te->rx_bytes = rx_bytes(tp);",
			"\te->rx_bytes = tx_bytes(tp, c->direction, tcp_state);\n\te->tx_bytes = rx_bytes(tp);"),
		of("tcpaccept", "backlog off by one", "e->backlog_max = BPF_CORE_READ(listener, sk_max_ack_backlog);", "e->backlog_max = BPF_CORE_READ(listener, sk_max_ack_backlog) + 1;"),
		of("tcptop", "sent bytes count as received", "table_add(value, tx_bytes, bytes);", "table_add(value, rx_bytes, bytes);"),
		of("tcptop", "one byte too many", "table_add(value, rx_bytes, bytes);", "table_add(value, rx_bytes, bytes + 1);"),
		of("tcpstates", "old and new state are swapped", "\te.oldstate = oldstate;\n\te.newstate = newstate;", "\te.oldstate = newstate;\n\te.newstate = oldstate;"),
		of("tcpdrop", "wrong byte order of the port", "e->packet.sport = bpf_ntohs(tcp.source);", "e->packet.sport = tcp.source;"),
		of("tcpdrop", "wrong reason", "\te->reason = reason;", "\te->reason = reason + 1;"),
		of("tcppktlat", "latency in us", "\te.latency_ns = e.task.time_ns - first_ns;", "\te.latency_ns = (e.task.time_ns - first_ns) / 1000;"),
		of("tcpsubnet", "bytes are counted twice", "table_add(value, tx_bytes, bytes);", "table_add(value, tx_bytes, 2 * bytes);"),
		of("bindsnoop", "failed calls succeed", "\te.ret = c->ret;", "\te.ret = 0;"),
		of("bindsnoop", "wrong requested port", "\te->wanted_port = port;", "\te->wanted_port = port + 1;"),
		of("solisten", "the limit is the request plus one", "\te.backlog = read_backlog(c);", "\te.backlog = read_backlog(c) + 1;"),
		of("shmsnoop", "size in pages", "\t\te->size = second;", "\t\te->size = second / 4096;"),
		of("undump", "wrong inode", "s->event.socket_inode = BPF_CORE_READ(file, f_inode, i_ino);", "s->event.socket_inode = BPF_CORE_READ(file, f_inode, i_ino) + 1;"),
		of("undump", "a byte of the data is missing", "\tlen = user_data_read(&s->message, d);", "\tlen = user_data_read(&s->message, d) - 1;"),
		of("filetop", "written bytes count as read", "table_add(value, write_bytes, bytes);", "table_add(value, read_bytes, bytes);"),
		of("filetop", "a read counts twice", "table_add(value, reads, 1);", "table_add(value, reads, 2);"),
		of("dirtop", "read bytes count as written", "table_add(value, read_bytes, bytes);", "table_add(value, write_bytes, bytes);"),
		of("vfsstat", "reads count as writes", "totals_add(reads, 1);", "totals_add(writes, 1);"),
		of("vfsstat", "failed mkdir", "totals_add(mkdirs, 1);", "totals_add(mkdirs, 0);"),
		of("fsslower", "latency in us", "\te->ns = end->ns;", "\te->ns = end->ns / 1000;"),
		of("fsslower", "wrong offset", "\te->offset = end->offset;", "\te->offset = end->offset + 1;"),
		of("fsslower", "wrong operation", "\te->op = end->op;", "\te->op = 0;"),
		of("syscount", "errors are not counted", "table_add(value, errors, n);", "table_add(value, errors, 0);"),
		of("syscount", "time in us", "table_add(value, total_ns, ns * n);", "table_add(value, total_ns, ns / 1000);"),
		of("pidpersec", "threads instead of processes", "totals_add(processes, 1);", "totals_add(threads, 1);"),
		of("profile", "samples count twice", "table_add(value, count, 1);", "table_add(value, count, 2);"),
		of("wakeuptime", "waits count twice", "table_add(value, count, 1);", "table_add(value, count, 2);"),
		of("wakeuptime", "time in us", "table_add(value, ns, ns);", "table_add(value, ns, ns / 1000);"),
		of("cpudist", "time from the wrong start", "taskhist_record(prev, 0, now_ns - cpu->switch_ns);", "taskhist_record(prev, 0, now_ns);"),
		of("runqlat", "time in us", "wait->ns, draw_weight(wait->shift));", "wait->ns / 1000, draw_weight(wait->shift));"),
		of("biosnoop", "latency in us", "e.latency_ns = now_ns - io->issue_ns;", "e.latency_ns = (now_ns - io->issue_ns) / 1000;"),
		of("biosnoop", "sectors instead of bytes", "\te.bytes = io->bytes;", "\te.bytes = io->bytes / 512;"),
		of("biosnoop", "wrong status", "\te.error = error;", "\te.error = error + 1;"),
		of("bitesize", "sectors instead of bytes", "hist_record(&key, io->bytes);", "hist_record(&key, io->bytes / 512);"),
		of("biotop", "requests count twice", "table_add(value, ios, 1);", "table_add(value, ios, 2);"),
		of("biotop", "time from the start", "table_add(value, total_ns, now_ns - io->issue_ns);", "table_add(value, total_ns, now_ns);"),
		of("biolatency", "time in us", "hist_record(key, to_ns - from_ns);", "hist_record(key, (to_ns - from_ns) / 1000);"),
		of("capable", "wrong user namespace", "\te->userns = BPF_CORE_READ(ns, ns.inum);", "\te->userns = BPF_CORE_READ(ns, ns.inum) + 1;"),
		of("capable", "wrong capability", "\te->cap = check->cap;", "\te->cap = check->cap + 1;"),
		of("funccount", "calls count twice", "table_add(value, count, 1);", "table_add(value, count, 2);"),
		of("funclatency", "a second too long", "\t__u64 now_ns = bpf_ktime_get_ns();", "\t__u64 now_ns = bpf_ktime_get_ns() + 1000000000;"),
		of("funcslower", "latency in us", "\ts->event.ns = ns;", "\ts->event.ns = ns / 1000;"),
		of("argdist", "calls count twice", "table_add(value, count, 1);", "table_add(value, count, 2);"),
		of("stackcount", "calls count twice", "table_add(value, count, 1);", "table_add(value, count, 2);"),
		of("runqslower", "latency 1000 times too long", "\te->latency_ns = wait->ns;", "\te->latency_ns = wait->ns * 1000;"),
		of("futexctn", "waits in us", "\thist_record_task(key, ns, task_current());", "\thist_record_task(key, ns / 1000, task_current());"),
		of("tcpretrans", "headers count as payload", "e.bytes = BPF_CORE_READ(skb, len);", "e.bytes = BPF_CORE_READ(skb, len) + 32;"),
		of("tcpsynbl", "the new connection counts too", "hist_record(&key, backlog);", "hist_record(&key, backlog + 1);"),
		of("ttysnoop", "wrong number of bytes", "\te->bytes = ret;", "\te->bytes = ret + 1;"),
		of("biostacks", "time in us", "hist_record(&key, now_ns - io->owner.start_ns);", "hist_record(&key, (now_ns - io->owner.start_ns) / 1000);"),
		of("softirqs", "runs count twice", "table_add(value, count, 1);", "table_add(value, count, 2);"),
		of("softirqs", "time in us", "table_add(value, total_ns, ns);", "table_add(value, total_ns, ns / 1000);"),
		of("softirqs", "the next softirq", "struct table_key key = { .vec = vec };", "struct table_key key = { .vec = vec + 1 };"),
		of("hardirqs", "runs count twice", "table_add(value, count, 1);", "table_add(value, count, 2);"),
		of("hardirqs", "time in us", "table_add(value, total_ns, ns);", "table_add(value, total_ns, ns / 1000);"),
		of("cachestat", "everything counts twice", "totals_add(member, 1)", "totals_add(member, 2)"),
		of("cachetop", "everything counts twice", "table_add(__v, member, 1);", "table_add(__v, member, 2);"),
		of("tcprtt", "eight times the round-trip time", "(srtt_us >> 3) * 1000ULL", "srtt_us * 1000ULL"),
		of("tcprtt", "time in us", "(srtt_us >> 3) * 1000ULL", "(srtt_us >> 3)"),
		of("memleak", "one byte too many", "struct held_value value = { .bytes = bytes,", "struct held_value value = { .bytes = bytes + 1,"),
		{"memleak", "freed memory is shown", "bpf/held.bpf.h", "\tbpf_map_delete_elem(&held, key);\n", ""},
		of("gethostlatency", "latency in us", "s->event.delta_ns = s->event.task.time_ns - call->start_ns;",
			"s->event.delta_ns = (s->event.task.time_ns - call->start_ns) / 1000;"),
		of("gethostlatency", "no result", "\t\te->ret = ret;", "\t\te->ret = 0;"),
		of("sslsniff", "length off by one", "\ts->event.len = len;", "\ts->event.len = len - 1;"),
		of("sslsniff", "reads are writes", "\ts->event.direction = c->direction;", "\ts->event.direction = 0;"),
		of("sslsniff", "latency in us", "s->event.delta_ns = s->event.task.time_ns - c->start_ns;", "s->event.delta_ns = (s->event.task.time_ns - c->start_ns) / 1000;"),
		of("threadsnoop", "the argument instead of the function", ".event.routine = (__u64)routine,", ".event.routine = (__u64)attr,"),
		of("tasks", "wrong PID namespace", "\te->pidns = BPF_CORE_READ(upid, ns, ns.inum);", "\te->pidns = BPF_CORE_READ(upid, ns, ns.inum) + 1;"),
		of("files", "wrong position", "\te->position = BPF_CORE_READ(file, f_pos);", "\te->position = 0;"),
		of("files", "wrong descriptor", "\te->fd = fd;", "\te->fd = fd + 1;"),
		of("maps", "wrong offset", "\t\te->offset_pages = BPF_CORE_READ(vma, vm_pgoff);", "\t\te->offset_pages = 0;"),
		of("sockets", "wrong limit", "e->backlog_max = BPF_CORE_READ(sk, sk_max_ack_backlog);", "e->backlog_max = BPF_CORE_READ(sk, sk_max_ack_backlog) + 1;"),
	}
}

// decoders returns mutants with changes in Go.
func decoders() []mutant {
	return []mutant{
		decoder("opensnoop", "errno is negative", "r.FD, r.Errno = -1, -r.Ret", "r.FD, r.Errno = -1, r.Ret"),
		decoder("exitsnoop", "exit code times 256", "uint64(status >> 8 & 0xff)", "uint64(status & 0xffff)"),
		decoder("statsnoop", "errno is negative", "r.Errno, r.Error = -min(r.Ret, 0)", "r.Errno, r.Error = min(r.Ret, 0)"),
		decoder("sigsnoop", "PID and TID of the target are swapped", "r.TargetPID = value.Count{N: uint64(e.Target.PID)", "r.TargetPID = value.Count{N: uint64(e.Target.TID)"),
		decoder("setuids", "the IDs after the call are those before it", "old := func(id uint32) value.Count { return value.Count{N: uint64(id)", "old := func(id uint32) value.Count { return value.Count{N: uint64(id) + 1"),
		decoder("filegone", "wrong action", `r.Action = "DELETE"`, `r.Action = "RENAME"`),
		decoder("naptime", "duration in us", "duration{value.Elapsed(r.Nanoseconds), r.Known}", "duration{value.Elapsed(r.Nanoseconds / 1000), r.Known}"),
	}
}
