//go:build !amd64

package main

// tscParam returns nothing: kernels of other architectures do not calibrate a host's counter.
func tscParam() string { return "" }
