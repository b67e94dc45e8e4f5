// Command slimbtf removes from BPF objects the types that no loader needs. A tool reads a few
// members of large kernel structs; clang describes each of them with all members and their types,
// which is four fifths of an object. What remains:
//
//   - the types of maps and variables, with all members,
//   - of other structs, unions and enums the members that CO-RE relocations name,
//   - functions, and the first source line of each.
//
// Offsets and sizes are kept, because loaders compare them with the instructions.
//
//	slimbtf FILE...
//
// It needs llvm-objcopy-19, or the program that the variable LLVM_OBJCOPY names.
package main

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := slimFile(path); err != nil {
			fmt.Fprintf(os.Stderr, "slimbtf: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

// slimFile replaces the sections .BTF and .BTF.ext of an object.
func slimFile(path string) error {
	types, ext, err := sections(path)
	if err != nil {
		return err
	}
	if ext == nil { // no programs
		return nil
	}
	types, ext, err = slim(types, ext)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "slimbtf")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	args := []string{}
	for name, data := range map[string][]byte{".BTF": types, ".BTF.ext": ext} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return err
		}
		args = append(args, "--update-section", name+"="+file)
	}
	objcopy := os.Getenv("LLVM_OBJCOPY")
	if objcopy == "" {
		objcopy = "llvm-objcopy-19"
	}
	if out, err := exec.Command(objcopy, append(args, path)...).CombinedOutput(); err != nil {
		return fmt.Errorf("replace sections: %w: %s", err, out)
	}
	return nil
}

func sections(path string) (types, ext []byte, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	for name, data := range map[string]*[]byte{".BTF": &types, ".BTF.ext": &ext} {
		s := f.Section(name)
		if s == nil {
			continue
		}
		if *data, err = s.Data(); err != nil {
			return nil, nil, fmt.Errorf("read section %s: %w", name, err)
		}
	}
	return types, ext, nil
}
