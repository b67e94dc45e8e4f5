// Command stacks measures the accuracy of stack traces: it compares the stacks that profile and
// its peers report with the known stacks of test programs, and writes docs/stacks.md. It must run
// as root in the root of the tree; `make stacks` does that. To run only some programs:
//
//	CASES="chain_fp go_stripped" make stacks
//
// Such a partial run prints the results, but does not write the file. PEERS=TREE is the directory
// tree with the peers; test/peers/install.sh creates it if necessary. INSTALL=1 installs missing
// compilers (Debian only). The test of the package runs some of the programs with corescope only.
//
// Each program spins in its innermost function, so that all samples have the same stack, which
// is known from the source: the chain. The figures cover all samples of the process:
//
//   - full: share of samples whose stack contains all functions of the chain without a gap, from
//     the interrupted function to the outermost one.
//   - found: mean share of the functions of the chain that the stack contains in order.
//   - named: share of the reported frames whose name is that of a function of the program.
//     Frames with an invalid address count as unnamed.
//
// A frame without a name counts as found if its address is in the function. Mangled names of C++
// and Rust functions count as correct.
package main
