package execsnoop

//go:generate ../../scripts/bpf2go.sh execsnoop.bpf.c
