// Command hidden exits with 0 if the kernel runs no BPF programs in the context of process 1, and
// with 1 otherwise. Needs root. On such a machine live tests may fail once, because events of
// that process are missed. scripts/test.sh runs this command before it repeats failed tests.
package main

import (
	"os"

	"github.com/corescope/corescope/internal/tooltest"
)

func main() {
	if !tooltest.HidesProcess1() {
		os.Exit(1)
	}
}
