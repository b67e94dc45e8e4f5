// Command stacks compares the stacks that profile shows, and its peers, with those that
// programs truly have, and writes docs/stacks.md. It runs as root in the root of the
// tree, by `make stacks`:
//
//	CASES="chain_fp go_stripped" make stacks
//
// runs a part and prints it, and writes nothing. PEERS=TREE names where
// test/peers/install.sh has put the peers, or shall. INSTALL=1 has Debian's compilers
// installed that are missing. Its test runs two of the cases, with ours alone.
//
// Each program spins in its innermost function, so that all its samples have one stack,
// which its source tells. Figures are over the samples of the whole process:
//
//   - full: the share of samples whose stack has all functions of the chain, one behind
//     the other, from the interrupted one to the outermost one.
//   - found: the functions of the chain that are in the stack, in their order.
//   - named: the share of frames that have the name of the function that is there, of all
//     frames that were shown. An address that is none of the process counts here.
//
// A frame without a name counts as found where the module, or the address, says which
// function it is in. Names that C++ and Rust compilers have mangled count as the right ones.
package main
