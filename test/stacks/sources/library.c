/* A program whose call chain passes through a library and returns to the program. */
#define KEEP __attribute__((noipa))

#ifdef LIBRARY
KEEP unsigned long three(unsigned long (*f)(unsigned long), unsigned long n) { return f(n) + 1; }
KEEP unsigned long two(unsigned long (*f)(unsigned long), unsigned long n) { return three(f, n) + 1; }
#else
#include <stdio.h>

unsigned long two(unsigned long (*f)(unsigned long), unsigned long n);
static volatile unsigned long sum;

KEEP static unsigned long leaf(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sum += i * n;
	return sum;
}

KEEP static unsigned long one(unsigned long n) { return two(leaf, n) + 1; }

int main(void)
{
	puts("ready"), fflush(stdout);
	for (;;)
		one(10000000);
}
#endif
