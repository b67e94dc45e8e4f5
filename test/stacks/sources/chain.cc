// A virtual function, a template, a lambda and a function that is inlined on the way down.
#include <cstdio>
#include <functional>

#define KEEP __attribute__((noinline, noclone, noipa))

namespace shapes {
static volatile unsigned long sum;

template <typename T> KEEP T leaf(T n)
{
	for (T i = 0; i < n; i++)
		sum += i * n;
	return sum;
}

template <typename T> static inline __attribute__((always_inline)) T inlined(T n)
{
	return leaf<T>(n) + 1;
}

struct Shape {
	virtual ~Shape() = default;
	virtual unsigned long area(unsigned long n) const = 0;
};

struct Square final : Shape {
	KEEP unsigned long area(unsigned long n) const override { return inlined(n) + 1; }
};

KEEP static unsigned long measure(const Shape &s, unsigned long n)
{
	return s.area(n) + 1;
}
} // namespace shapes

int main()
{
	shapes::Square s;
	std::puts("ready"), std::fflush(stdout);
	for (;;)
		shapes::measure(s, 10000000);
}
