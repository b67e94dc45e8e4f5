package execsnoop

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

func TestVerif(t *testing.T) {
	spec, _ := loadBpf()
	if os.Getenv("ALL") != "" {
		spec.Variables["want_exe"].Set(true)
		spec.Variables["want_cwd"].Set(true)
	}
	for name, p := range spec.Programs {
		s := &ebpf.CollectionSpec{Maps: spec.Maps, Variables: spec.Variables, Types: spec.Types, ByteOrder: spec.ByteOrder, Programs: map[string]*ebpf.ProgramSpec{name: p}}
		t0 := time.Now()
		c, err := ebpf.NewCollectionWithOptions(s, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats, LogSizeStart: 16 << 20}})
		fmt.Println(name, time.Since(t0), err)
		if err == nil {
			fmt.Println(c.Programs[name].VerifierLog)
			c.Close()
		}
	}
}
