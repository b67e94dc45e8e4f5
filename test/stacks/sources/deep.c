/* 300 calls deep. */
#include <stdio.h>

#define KEEP __attribute__((noipa))

static volatile unsigned long sum;

KEEP static unsigned long leaf(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sum += i * n;
	return sum;
}

KEEP static unsigned long down(int depth)
{
	unsigned long all = depth > 1 ? down(depth - 1) : leaf(10000000);

	sum += all; /* prevents a tail call */
	return all;
}

int main(void)
{
	puts("ready"), fflush(stdout);
	for (;;)
		down(300);
}
