package tools

import _ "embed"

// Objects states how the BPF objects of each tool were built, in lines of the name of the tool, the version
// of the compiler, that of the headers of libbpf, and the SHA-256 hash of the source, separated by tabs.
// scripts/record-object.sh writes it and defines the hash.
//
//go:embed objects.txt
var Objects string
