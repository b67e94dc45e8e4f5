// Command bench measures corescope's tools and their peers of libbpf-tools on the same
// loads, in turn, and writes docs/benchmarks.md and docs/benchmarks.json. It runs as
// root in the root of the tree, by `make bench`:
//
//	TOOLS="opensnoop runqlat" ROUNDS=3 make bench
//
// runs a part and prints it, and writes nothing. PEERS=TREE names where
// test/peers/install.sh has put the peers, or shall. Its test runs every case once, with
// a short load.
//
// What is measured:
//
//   - In the kernel: the run time of all of a tool's programs, as the kernel counts it
//     (BPF_ENABLE_STATS), divided by the load's events. Paced loads leave the tool time to
//     read; unpaced ones do not.
//   - The load's time with the tool attached, divided by its time with nothing attached in
//     the same round. The kernel's counting is on in both.
//   - User space: CPU time of the tool's process from before the load until its rows are
//     written to a file, for a million of these rows.
//   - Seen: rows of the load's events, to a file and to a pipe that another process reads,
//     and as JSON to a file; with what the tool says to have lost, as far as it says so.
//   - Start: from fork to the first event of a ticking load that a row is of; for tools
//     without rows, until the last program is attached. Both are started by fork, chroot
//     and exec alone: the mounts that a peer's tree needs are made before.
//   - Peak memory: VmHWM without the pages of ring and perf buffers; those, with maps and
//     programs, are the memory in the kernel.
//   - Stop: from SIGINT to the end of the process.
//   - A sampling tool's share of a CPU: its programs' run time, and the CPU time of its process
//     from start to end, divided by the load's time.
//   - Scale: time in the kernel with many tasks sleeping, or with many keys, divided by that
//     with few. With many CPUs and with few it is instructions, in virtual machines
//     (test/kernels) that emulate them; cpus.go says what that can tell.
//
// Each figure is the median of the rounds, and its ratio the median of the rounds' ratios:
// ours and the peer's were measured within seconds of each other.
package main
