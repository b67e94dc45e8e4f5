// Command site writes the documentation of a tree as static HTML: the Markdown files, the manual pages and
// the schemas, with navigation and search. Nothing is loaded from elsewhere, so it can be read from files.
//
// Usage: site TREE DIRECTORY
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: site TREE DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// run writes the site and checks its links.
func run(tree, out string) error {
	s, err := load(tree)
	if err != nil {
		return err
	}
	if err := s.write(out); err != nil {
		return err
	}
	return errors.Join(check(out)...)
}
