/* Spins in the vDSO. */
#include <stdio.h>
#include <time.h>

#define KEEP __attribute__((noipa))

static volatile unsigned long sum;

KEEP static unsigned long leaf(unsigned long n)
{
	struct timespec t;

	while (n--) {
		clock_gettime(CLOCK_MONOTONIC, &t);
		sum += t.tv_nsec;
	}
	return sum;
}

KEEP static unsigned long two(unsigned long n) { return leaf(n) + 1; }
KEEP static unsigned long one(unsigned long n) { return two(n) + 1; }

int main(void)
{
	puts("ready"), fflush(stdout);
	for (;;)
		one(1000000);
}
