/*
 * A JIT compiler: C calls code generated at run time, which calls C. The code is announced in a
 * perf map or, with JITDUMP, in a jitdump, in the formats that perf documents.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define KEEP __attribute__((noipa))

typedef unsigned long fn(unsigned long);

static volatile unsigned long sum;

KEEP static unsigned long leaf(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sum += i * n;
	return sum;
}

KEEP static unsigned long three(unsigned long n) { return leaf(n) + 1; }

/* Calls its second argument with the first, and keeps a frame pointer. */
#if defined(__x86_64__)
#define MACHINE EM_X86_64
static const uint8_t code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3 };
#else
#define MACHINE EM_AARCH64
static const uint32_t code[] = { 0xa9bf7bfd, 0x910003fd, 0xd63f0020, 0xa8c17bfd, 0xd65f03c0 };
#endif

static unsigned long (*jitted)(unsigned long, fn *);

KEEP static unsigned long one(unsigned long n) { return jitted(n, three) + 1; }

#ifndef JITDUMP
static void announce(void *at)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	f = fopen(path, "w");
	fprintf(f, "%lx %zx jitted function\n", (unsigned long)at, sizeof(code));
	fclose(f);
}
#else
static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void announce(void *at)
{
	static const char name[] = "jitted function";
	struct {
		uint32_t magic, version, size, machine, pad, pid;
		uint64_t time, flags;
	} head = { 0x4a695444, 1, sizeof(head), MACHINE, 0, getpid(), now(), 0 };
	struct {
		uint32_t id, size;
		uint64_t time;
		uint32_t pid, tid;
		uint64_t vma, addr, code_size, index;
	} load = { 0, sizeof(load) + sizeof(name) + sizeof(code), now(), getpid(), gettid(),
		   (uint64_t)at, (uint64_t)at, sizeof(code), 1 };
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "jit-%d.dump", getpid());
	fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0644);
	if (write(fd, &head, sizeof(head)) < 0 || write(fd, &load, sizeof(load)) < 0 ||
	    write(fd, name, sizeof(name)) < 0 || write(fd, code, sizeof(code)) < 0)
		exit(1);
	mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
}
#endif

int main(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(page, code, sizeof(code));
	__builtin___clear_cache(page, page + sizeof(code));
	jitted = page;
	announce(page);
	puts("ready"), fflush(stdout);
	for (;;)
		one(10000000);
}
