package tool

// ReturnsManual describes in a paragraph of a tool's manual how returns of user functions are observed.
const ReturnsManual = `Returns of user functions are observed by uprobes at their return instructions, which do not affect the program. If not all return instructions of a function can be determined, because it ends with a jump through a pointer or to a function of another file, a uretprobe is used, but only for functions that no exception and no thread cancellation can leave. Other functions are reported and not traced. With --uretprobes, they are traced by uretprobes too. A uretprobe replaces the return address on the stack, so that an exception that leaves the function, or passes through it, aborts the program, and destructors do not run if a thread is cancelled in it. --explain shows how functions are attached.

Functions whose first instruction the kernel misreads are reported and not traced either: the kernel emulates some vector instructions (VEX and EVEX) as jumps and does not execute them. On CPUs with AVX-512, strchr, strchrnul, index, rawmemchr and memset of the GNU C library start with such an instruction.`
