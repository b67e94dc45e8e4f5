// Package faults has the tests of what the tools do when something around them is not
// as it should be: killed, out of memory, not read from, on a kernel that hides what
// they need. Each fault is tried for every tool, with a load of which it is known how
// often it happened, and judged by what the tool itself says: its rows and what it
// tells was lost must make up what happened. docs/faults.md is the table of them.
package faults
