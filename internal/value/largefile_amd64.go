package value

// kernelLargefile is the kernel's O_LARGEFILE; user space's is 0 on 64-bit machines.
const kernelLargefile = 0o100000
