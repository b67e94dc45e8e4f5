// Package faults tests the tools under faults: when a tool is killed, runs out of memory, has a
// blocked reader, or runs on a kernel without BTF or tracefs. Each fault is applied to every tool
// with a load that generates a known number of events. Reported rows plus lost events must equal
// that number. docs/faults.md lists the faults.
package faults
