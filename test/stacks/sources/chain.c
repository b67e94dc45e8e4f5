/* Spins in leaf(), four calls below main(). With MEMFD, the program runs from a memfd. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#define KEEP __attribute__((noipa))

static volatile unsigned long sum;

KEEP unsigned long leaf(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sum += i * n;
	return sum;
}

KEEP unsigned long three(unsigned long n) { return leaf(n) + 1; }
KEEP unsigned long two(unsigned long n) { return three(n) + 1; }
KEEP unsigned long one(unsigned long n) { return two(n) + 1; }

static void move(char **argv, char **envp)
{
	int from = open("/proc/self/exe", O_RDONLY), to = memfd_create("chain", 0);

	argv[0] = "memfd";
	while (sendfile(to, from, NULL, 1 << 20) > 0)
		;
	fexecve(to, argv, envp);
	perror("fexecve");
	_exit(1);
}

int main(int argc, char **argv, char **envp)
{
#ifdef MEMFD
	if (strcmp(argv[0], "memfd"))
		move(argv, envp);
#endif
	puts("ready"), fflush(stdout);
	for (;;)
		one(10000000);
}
