/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __QUERY_BPF_H
#define __QUERY_BPF_H

/*
 * Queries of database servers. The tool defines query_end(ctx, q), which is called when a query ends
 * that takes at least targ_min_ns. QUERY_TEXT is the maximum number of bytes of its text, 0 if the
 * tool does not need the text.
 */

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "lost.bpf.h"
#include "observing.bpf.h"
#include "return.bpf.h"
#include "task.bpf.h"
#include "usdt.bpf.h"

struct counters {
	__u64 no_end; /* queries whose server process or thread ended, that MariaDB suspended, or that still run */
	__u64 text_unread; /* queries whose text could not be read from the memory of the server */
	__u64 text_unknown; /* of MySQL, executes of statements whose PREPARE was not observed, or is no longer kept */
};

#include "counters.bpf.h"

/* Only queries that take at least this time. */
const volatile __u64 targ_min_ns = 0;

enum database {
	DATABASE_POSTGRES,
	DATABASE_MYSQL,
};

/* Keeps the types in the BTF of the object, for comparison with the Go constants. */
const enum database *database_type __attribute__((unused));

enum query_command {
	QUERY_SIMPLE, /* the text is sent, and executed */
	QUERY_PREPARE,
	QUERY_EXECUTE, /* a prepared statement */
};

const enum query_command *query_command_type __attribute__((unused));

/* Whether the server has reported an error. */
enum query_outcome {
	OUTCOME_UNKNOWN,
	OUTCOME_SUCCESS,
	OUTCOME_FAILURE,
};

const enum query_outcome *query_outcome_type __attribute__((unused));

struct event {
	struct task_info task;
	__u64 latency_ns;
	__u32 text_len;
	__u32 statement_id; /* of MySQL, for QUERY_EXECUTE */
	__u8 database;
	__u8 command;
	__u8 outcome;
	__u8 truncated; /* the text is longer */
	__u32 pad;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* The query that a thread executes. */
struct query {
	struct event event;
#if QUERY_TEXT
	char text[QUERY_TEXT];
#endif
	__u64 start_ns;
	__u64 frame; /* of the call of dispatch_command, 0 for queries seen by USDT probes */
	__u64 caller;
	__u32 depth; /* portals that PostgreSQL executes, one within the other */
	__u8 counted; /* in no_end */
	__u8 suspends; /* the function can return before the query ends */
	__u8 known; /* the object of the prepared statement has been seen */
	__u8 pad[1];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* thread */
	__type(value, struct query);
} queries SEC(".maps");

/* Zero initializer, in .rodata because of the 512-byte stack limit. */
static const struct query query_zero = {};

static __always_inline void query_end(void *ctx, struct query *q);

static __always_inline struct query *query_find(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	return bpf_map_lookup_elem(&queries, &tid);
}

static __always_inline void query_delete(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&queries, &tid);
}

/* query_begin returns the query that the thread begins, or NULL if it is lost or unwanted. */
static __always_inline struct query *query_begin(__u8 database, __u8 command)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct query *q;

	if (!observing || !task_current_wanted())
		return NULL;
	bpf_map_update_elem(&queries, &tid, &query_zero, BPF_ANY);
	q = bpf_map_lookup_elem(&queries, &tid);
	if (!q) {
		lost_add(map_full);
		return NULL;
	}
	q->event.database = database;
	q->event.command = command;
	q->start_ns = bpf_ktime_get_boot_ns();
	return q;
}

static __always_inline void query_count(struct query *q)
{
	if (!q->counted)
		counter_add(no_end);
	q->counted = 1;
}

static __always_inline void query_finish(void *ctx, struct query *q, __u8 outcome)
{
	__u64 end_ns = bpf_ktime_get_boot_ns();

	if (q->counted)
		counter_add_n(no_end, -1);
	q->event.outcome = outcome;
	q->event.latency_ns = end_ns - q->start_ns;
	if (q->event.latency_ns >= targ_min_ns)
		query_end(ctx, q);
	query_delete();
}

/* query_read reads a text of len bytes. */
static __always_inline void query_read(struct query *q, const void *text, __u64 len)
{
#if QUERY_TEXT
	if (len > QUERY_TEXT) {
		q->event.truncated = 1;
		len = QUERY_TEXT;
	}
	if (bpf_probe_read_user(q->text, len, text))
		counter_add(text_unread);
	else
		q->event.text_len = len;
#endif
}

/* query_read_str reads a text that ends with a NUL byte. */
static __always_inline void query_read_str(struct query *q, const char *text)
{
#if QUERY_TEXT
	long len = read_user_str(q->text, QUERY_TEXT, text);
	char more = 0;

	if (len <= 0 || len > QUERY_TEXT) {
		counter_add(text_unread);
		return;
	}
	if (len == QUERY_TEXT)
		bpf_probe_read_user(&more, sizeof(more), text + len - 1);
	q->event.truncated = more != 0;
	q->event.text_len = len - 1;
#endif
}

/*
 * PostgreSQL. A simple query is what is between query__start and query__done. Of the extended
 * protocol, and for queries that fail, there are other probes: statement__status has the text of
 * each message (Parse, Bind, Execute) when its processing begins, and NULL when the process becomes
 * idle. A portal is executed between query__execute__start and query__execute__done, which can be
 * nested, and are also part of a simple query.
 */
SEC("usdt/postgres:postgresql:statement__status")
int postgres__usdt__status(struct pt_regs *ctx)
{
	struct query *q = query_find();
	__u64 text = 0;

	usdt_arg(ctx, 0, &text);
	if (q && q->counted)
		query_finish(ctx, q, OUTCOME_FAILURE);
	else if (q)
		query_delete();
	if (!text)
		return 0;
	q = query_begin(DATABASE_POSTGRES, QUERY_EXECUTE);
	if (q)
		query_read_str(q, (const char *)text);
	return 0;
}

SEC("usdt/postgres:postgresql:query__start")
int postgres__usdt__start(struct pt_regs *ctx)
{
	struct query *q = query_find();
	__u64 text = 0;

	if (!q) { /* the tool has started after statement__status */
		q = query_begin(DATABASE_POSTGRES, QUERY_SIMPLE);
		if (!q)
			return 0;
		usdt_arg(ctx, 0, &text);
		query_read_str(q, (const char *)text);
	}
	q->event.command = QUERY_SIMPLE;
	q->start_ns = bpf_ktime_get_boot_ns();
	query_count(q);
	return 0;
}

SEC("usdt/postgres:postgresql:query__done")
int postgres__usdt__done(struct pt_regs *ctx)
{
	struct query *q = query_find();

	if (q && q->event.command == QUERY_SIMPLE)
		query_finish(ctx, q, OUTCOME_SUCCESS);
	return 0;
}

SEC("usdt/postgres:postgresql:query__execute__start")
int postgres__usdt__run(struct pt_regs *ctx)
{
	struct query *q = query_find();

	if (!q || q->event.command == QUERY_SIMPLE)
		return 0;
	q->depth++;
	query_count(q);
	return 0;
}

SEC("usdt/postgres:postgresql:query__execute__done")
int postgres__usdt__ran(struct pt_regs *ctx)
{
	struct query *q = query_find();

	if (!q || q->event.command == QUERY_SIMPLE || !q->depth)
		return 0;
	if (!--q->depth)
		query_finish(ctx, q, OUTCOME_SUCCESS);
	return 0;
}

/*
 * MySQL and MariaDB. dispatch_command() executes a command of a client. It overwrites the text, which
 * is in the buffer of the connection, so the text is read at its entry.
 */
#define COM_QUERY 3
#define COM_STMT_PREPARE 22
#define COM_STMT_EXECUTE 23
#define COM_STMT_BULK_EXECUTE 250 /* MariaDB */
/* enum dispatch_command_return of MariaDB 10.6: another thread continues the command. */
#define DISPATCH_COMMAND_WOULDBLOCK 2

static __always_inline struct query *dispatch(struct pt_regs *ctx, __u32 command)
{
	struct query *q;

	if (command == COM_QUERY)
		q = query_begin(DATABASE_MYSQL, QUERY_SIMPLE);
	else if (command == COM_STMT_PREPARE)
		q = query_begin(DATABASE_MYSQL, QUERY_PREPARE);
	else if (command == COM_STMT_EXECUTE || command == COM_STMT_BULK_EXECUTE)
		q = query_begin(DATABASE_MYSQL, QUERY_EXECUTE);
	else
		return NULL;
	if (!q)
		return NULL;
	q->frame = frame_at_begin(ctx);
	q->caller = caller_address(ctx);
	query_count(q);
	return q;
}

static __always_inline void read_statement(struct query *q, const void *at)
{
	bpf_probe_read_user(&q->event.statement_id, sizeof(q->event.statement_id), at);
}

/* The members of union COM_DATA of MySQL for these commands begin like this. */
struct com_data {
	__u64 query; /* or the ID of the statement */
	__u32 length;
};

/* MySQL 5.7 and later: dispatch_command(THD *, const COM_DATA *, enum_server_command) */
#define DISPATCH_DATA "_Z16dispatch_commandP3THDPK8COM_DATA19enum_server_command"

SEC("uprobe/mysqld:" DISPATCH_DATA)
int BPF_KPROBE(mysql__uprobe__data, void *thd, const struct com_data *data, __u32 command)
{
	struct query *q = dispatch(ctx, command);
	struct com_data d = {};

	if (!q)
		return 0;
	bpf_probe_read_user(&d, sizeof(d), data);
	if (q->event.command == QUERY_EXECUTE)
		q->event.statement_id = d.query;
	else
		query_read(q, (const void *)d.query, d.length);
	return 0;
}

static __always_inline struct query *dispatch_packet(struct pt_regs *ctx, __u32 command, const void *packet,
						     __u32 len)
{
	struct query *q = dispatch(ctx, command);

	if (!q)
		return NULL;
	if (q->event.command == QUERY_EXECUTE)
		read_statement(q, packet);
	else
		query_read(q, packet, len);
	return q;
}

/* MySQL 5.6 and MariaDB before 10.6: dispatch_command(enum_server_command, THD *, char *, uint[, bool, bool]) */
#define DISPATCH_PACKET "_Z16dispatch_command19enum_server_commandP3THDPcj"

SEC("uprobe/mysqld:" DISPATCH_PACKET "," DISPATCH_PACKET "bb")
int BPF_KPROBE(mysql__uprobe__packet, __u32 command, void *thd, const void *packet, __u32 len)
{
	dispatch_packet(ctx, command, packet, len);
	return 0;
}

/* MariaDB 10.6 and later: one bool, which permits the function to return before the command ends. */
SEC("uprobe/mysqld:" DISPATCH_PACKET "b")
int BPF_KPROBE(mysql__uprobe__blocking, __u32 command, void *thd, const void *packet, __u32 len)
{
	struct query *q = dispatch_packet(ctx, command, packet, len);

	if (q)
		q->suspends = 1;
	return 0;
}

SEC("uretprobe/mysqld:" DISPATCH_DATA "," DISPATCH_PACKET "," DISPATCH_PACKET "bb," DISPATCH_PACKET "b")
int mysql__uprobe__return(struct pt_regs *ctx)
{
	__u64 form = return_form();
	struct query *q = query_find();

	if (!q || !q->frame || q->frame != frame_at_return(ctx, form) || !return_matches(ctx, form, q->caller))
		return 0;
	if (q->suspends && (__u32)PT_REGS_RC(ctx) == DISPATCH_COMMAND_WOULDBLOCK)
		query_delete(); /* stays counted in no_end */
	else
		query_finish(ctx, q, OUTCOME_UNKNOWN);
	return 0;
}

#if QUERY_TEXT
/*
 * Prepared statements, whose texts are only part of the PREPARE. An object of the server identifies
 * them until it is destroyed: IDs are assigned by the server, and also used up by PREPARE in SQL.
 */
struct statement_key {
	__u64 object; /* struct Prepared_statement */
	__u32 tgid;
	__u32 pad;
};

/* What struct query begins with. */
struct statement {
	struct event event;
	char text[QUERY_TEXT];
};

/* The least recently used ones are dropped: a server that is killed destroys no objects. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2048);
	__type(key, struct statement_key);
	__type(value, struct statement);
} statements SEC(".maps");

static __always_inline struct statement_key statement_key(const void *object)
{
	return (struct statement_key){ .object = (__u64)object, .tgid = bpf_get_current_pid_tgid() >> 32 };
}

#define STATEMENT "_ZN18Prepared_statement"
/* (const char *, uint), with size_t in MySQL 5.7, and with THD in 8.0 */
#define STATEMENT_PREPARE \
	STATEMENT "7prepareEPKcj," STATEMENT "7prepareEPKcm," STATEMENT "7prepareEP3THDPKcmPP10Item_param"

/* A command uses its statement first; a procedure that it calls can use others. */
SEC("uprobe/mysqld:" STATEMENT_PREPARE)
int BPF_KPROBE(mysql__uprobe__prepare, void *object)
{
	struct statement_key key = statement_key(object);
	struct query *q = query_find();

	if (!q || q->event.command != QUERY_PREPARE || q->known)
		return 0;
	q->known = 1;
	bpf_map_delete_elem(&statements, &key);
	if (q->event.text_len)
		bpf_map_update_elem(&statements, &key, q, BPF_ANY); /* otherwise counted in text_unknown */
	return 0;
}

/* (String *, bool[, uchar *, uchar *[, bool]]), with THD in MySQL 8.0 */
#define STATEMENT_EXECUTE                                                                        \
	STATEMENT "12execute_loopEP6StringbPhS2_," STATEMENT "17execute_bulk_loopEP6StringbPhS2_b," \
		  STATEMENT "12execute_loopEP6Stringb," STATEMENT "12execute_loopEP3THDP6Stringb"

SEC("uprobe/mysqld:" STATEMENT_EXECUTE)
int BPF_KPROBE(mysql__uprobe__execute, void *object)
{
	struct statement_key key = statement_key(object);
	struct query *q = query_find();
	struct statement *s;
	__u32 len;

	if (!q || q->event.command != QUERY_EXECUTE || q->known)
		return 0;
	q->known = 1;
	s = bpf_map_lookup_elem(&statements, &key);
	if (!s) {
		counter_add(text_unknown);
		return 0;
	}
	len = s->event.text_len;
	if (len > QUERY_TEXT || bpf_probe_read_kernel(q->text, len, s->text))
		return 0;
	q->event.text_len = len;
	q->event.truncated = s->event.truncated;
	return 0;
}

SEC("uprobe/mysqld:" STATEMENT "D0Ev," STATEMENT "D1Ev," STATEMENT "D2Ev")
int BPF_KPROBE(mysql__uprobe__destroy, void *object)
{
	struct statement_key key = statement_key(object);

	bpf_map_delete_elem(&statements, &key);
	return 0;
}
#endif

/* USDT probes of MySQL before 8.0 that was built with them. They are within dispatch_command(). */
SEC("usdt/mysqld:mysql:query__start")
int mysqlprobe__usdt__start(struct pt_regs *ctx)
{
	struct query *q = query_find();
	__u64 text = 0;

	if (q && q->frame)
		return 0;
	q = query_begin(DATABASE_MYSQL, QUERY_SIMPLE);
	if (!q)
		return 0;
	query_count(q);
	usdt_arg(ctx, 0, &text);
	query_read_str(q, (const char *)text);
	return 0;
}

SEC("usdt/mysqld:mysql:query__done")
int mysqlprobe__usdt__done(struct pt_regs *ctx)
{
	struct query *q = query_find();
	__u64 failed = 0;

	usdt_arg(ctx, 0, &failed);
	if (q && !q->frame)
		query_finish(ctx, q, failed ? OUTCOME_FAILURE : OUTCOME_SUCCESS);
	return 0;
}

static __always_inline int query_forget(void)
{
	if (query_find())
		query_delete();
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(ended__btf)
{
	return query_forget();
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(ended__raw)
{
	return query_forget();
}

SEC("tp/sched/sched_process_exit")
int ended__tp(void *ctx)
{
	return query_forget();
}

#endif
