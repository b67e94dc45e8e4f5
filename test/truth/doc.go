// Command truth compares the output of the tools with independent references on real
// programs: strace, perf, fio, curl, ss, lsof, valgrind, OpenJDK, /proc. It observes the
// same run of a program with a tool and with its reference, and writes both numbers to
// docs/truth.md. It exits with 1 if a number is outside its stated bound.
//
// It runs as root. Install the references with test/truth/install.sh. A comparison whose
// reference is missing on this machine is listed as such, with the reason.
//
// TOOLS limits the run to some tools; then docs/truth.md is not written.
package main
