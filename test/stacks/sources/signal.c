/* Spins in a signal handler that interrupted an arbitrary instruction of interrupted(). */
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

#define KEEP __attribute__((noipa))

static volatile unsigned long sum;

KEEP static unsigned long leaf(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sum += i * n;
	return sum;
}

KEEP static void handler(int sig)
{
	puts("ready"), fflush(stdout);
	for (;;)
		leaf(10000000);
}

KEEP static unsigned long interrupted(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sum += i ^ n;
	return sum;
}

KEEP static unsigned long one(unsigned long n) { return interrupted(n) + 1; }

int main(void)
{
	struct itimerval soon = { .it_value.tv_usec = 50000 };

	signal(SIGVTALRM, handler);
	setitimer(ITIMER_VIRTUAL, &soon, NULL);
	for (;;)
		one(1000000000);
}
