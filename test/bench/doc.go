// Command bench compares corescope with libbpf-tools. It runs the tools of both in turn
// under the same loads and writes docs/benchmarks.md and docs/benchmarks.json. It must run as
// root in the root of the tree; `make bench` does that. To run only some tools or rounds:
//
//	TOOLS="opensnoop runqlat" ROUNDS=3 make bench
//
// Such a partial run prints the results, but does not write the files. BASE=FILE compares with
// another binary of corescope instead of with libbpf-tools, such as one of an earlier commit, and does
// not write the files either. PEERS=TREE is the directory tree with libbpf-tools;
// test/peers/install.sh creates it if necessary. The test of
// the package runs every case once with a short load.
//
// Figures:
//
//   - BPF run time: run time of all programs of the tool as measured by the kernel
//     (BPF_ENABLE_STATS), per event of the load. A paced load gives the tool time to read its
//     buffers, an unpaced load runs as fast as possible.
//   - Load duration: duration of the load with the tool attached, divided by the duration
//     without a tool in the same round. BPF_ENABLE_STATS is enabled in both cases.
//   - CPU time in user space: CPU time of the tool's process, from the start of the load until
//     all rows are written to a file, per million rows.
//   - Events reported: rows about events of the load in percent of the events, with output to
//     a file, to a pipe that another process reads, and as JSON to a file. corescope's own
//     count of lost events must account for the rest.
//   - Time to first event: from fork until the first reported event of a periodic load; for
//     tools without rows, until the last program is attached. Tools are started with fork,
//     chroot and exec only; the mounts that chroot needs exist before.
//   - Peak memory: VmHWM without the pages of ring buffers and perf buffers. These count as
//     kernel memory, together with maps and programs.
//   - Time to stop: from SIGINT to the end of the process.
//   - CPU share of a sampling tool: run time of its programs plus CPU time of its process,
//     divided by the duration of the load.
//   - Scalability: BPF run time with many sleeping tasks or many keys, divided by that with
//     few. For CPUs, the number of instructions is compared, in virtual machines
//     (test/kernels); see cpus.go for the limits of that method.
//
// Each figure is the median over the rounds. Ratios are medians of the ratios within a round,
// in which both tools run within seconds of each other.
package main
