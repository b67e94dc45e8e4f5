"""Spins in leaf, three calls below the module."""


def leaf(n):
    total = 0
    for i in range(n):
        total += i * n
    return total


def two(n):
    return leaf(n) + 1


def one(n):
    return two(n) + 1


# Python generates the trampoline of a function at its first call, and writes perf map entries only
# once a page of them is full.
one(1000)
for i in range(500):
    exec(f"def more{i}(): pass\nmore{i}()")
print("ready", flush=True)
while True:
    one(1000000)
