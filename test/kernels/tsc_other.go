//go:build !amd64

package main

// tscParam is not needed where no kernel measures the host's time stamps.
func tscParam() string { return "" }
