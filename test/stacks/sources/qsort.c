/* Spins in a function called by libc's qsort(). */
#include <stdio.h>
#include <stdlib.h>

#define KEEP __attribute__((noipa))

static volatile unsigned long sum;

KEEP static unsigned long leaf(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sum += i * n;
	return sum;
}

KEEP static int compare(const void *a, const void *b)
{
	leaf(1000000);
	return *(const int *)a - *(const int *)b;
}

KEEP static int sorter(int *all, int n)
{
	for (int i = 0; i < n; i++)
		all[i] = i * 7919 % n;
	qsort(all, n, sizeof(*all), compare);
	return all[0];
}

int main(void)
{
	int all[64];

	puts("ready"), fflush(stdout);
	for (;;)
		sum += sorter(all, 64);
}
