// Command truth compares the output of the tools with independent references on real programs:
// strace, perf, fio, curl, ss, lsof, OpenJDK, /proc. A tool and its reference observe the same run
// of a program. Both numbers are written to docs/truth.md. The exit code is 1 if a number is
// outside its stated bound.
//
// It runs as root. test/truth/install.sh installs the references. A comparison whose reference is
// not available on this machine is listed with the reason.
//
// TOOLS limits the run to some tools; the page keeps the lines of the others.
package main
