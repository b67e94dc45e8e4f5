package execsnoop

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

func TestVerif(t *testing.T) {
	rlimit.RemoveMemlock()
	spec, _ := loadBpf()
	if os.Getenv("ALL") != "" {
		spec.Variables["want_exe"].Set(true)
		spec.Variables["want_cwd"].Set(true)
	}
	for name, p := range spec.Programs {
		s := &ebpf.CollectionSpec{Maps: spec.Maps, Variables: spec.Variables, Types: spec.Types, ByteOrder: spec.ByteOrder, Programs: map[string]*ebpf.ProgramSpec{name: p}}
		t0 := time.Now()
		c, err := ebpf.NewCollectionWithOptions(s, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats, LogSizeStart: 1 << 20}})
		fmt.Println(name, time.Since(t0))
		if err == nil {
			fmt.Println(c.Programs[name].VerifierLog)
			c.Close()
			continue
		}
		var v *ebpf.VerifierError
		if errors.As(err, &v) {
			l := v.Log
			if len(l) > 60 {
				l = l[len(l)-60:]
			}
			for _, x := range l {
				fmt.Println(x)
			}
		}
		fmt.Println(err)
		return
	}
}
