package tools_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/document"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools"
)

// TestValuesRefused checks that invalid values are rejected with an error that names the flag and
// the valid values.
func TestValuesRefused(t *testing.T) {
	for line, want := range map[string]string{
		"biosnoop -m -1":                       `"-m, --min" flag: "-1" is not a duration`,
		"offcputime -m 10 -M 5":                "--max-block-time 5: it must be at least --min-block-time, which is 10",
		"wakeuptime -u -k":                     "--user-threads-only and --kernel-threads-only cannot be combined",
		"profile -U -K":                        "--user-stacks-only and --kernel-stacks-only cannot be combined",
		"offcputime --state -5":                `"-5" for "--state" flag: it must be -1 to 65535`,
		"offwaketime --state 65536":            "it must be -1 to 65535",
		"vfsstat 1 0":                          `"0" for count: it must be at least 1`,
		"syscount 1 0":                         `"0" for count: it must be at least 1`,
		"memleak 1 0":                          `"0" for count: it must be at least 1`,
		"argdist -n 0":                         "it must be at least 1",
		"filetop -s nosuch":                    `usage: --sort: column "nosuch": no such column`,
		"syscount -s nosuch":                   `usage: --sort: column "nosuch": no such column`,
		"opensnoop --columns nosuch":           `usage: --columns: column "nosuch": no such column`,
		"opensnoop --filter nosuch":            "usage: --filter: compile filter: unknown name nosuch",
		"opensnoop -f O_NOSUCH":                `usage: --flag-filter: "O_NOSUCH" is not a flag of open(2)`,
		"opensnoop -b 0":                       "it must be 1 to 262144",
		"profile -F 0":                         "it must be 1 to 100000",
		"profile -F 1000000":                   "it must be 1 to 100000",
		"profile -c 9999":                      "it must be 10000 to 9223372036854775807",
		"profile -C -1":                        "it must be at least 0",
		"profile --unwind dwarf":               "it must be auto or fp",
		"profile --perf-max-stack-depth 513":   "it must be 1 to 512",
		"funccount -c -2 x":                    "it must be at least -1",
		"opensnoop --pid 0":                    "it must be at least 1",
		"execsnoop --max-args -1":              "it must be at least 1",
		"memleak -z 10 -Z 5":                   "--max-size 5: it must be at least --min-size, which is 10",
		"memleak -s 0":                         "it must be at least 1",
		"sslsniff --max-buffer-size 16385":     "it must be at most 16384",
		"sslsniff -o -g -n":                    "leave no library to trace",
		"javagc -M -1":                         `"-1" is not a duration`,
		"sockets -l -e":                        "--listening and --established cannot be combined",
		"sockets -x -4":                        "do not apply to Unix sockets",
		"biotop -r 0":                          "it must be at least 1",
		"tcpdrop --netns-id 0":                 "it must be at least 1",
		"opensnoop --limit 0":                  "it must be at least 1",
		"wakeuptime -m 18446744073709552":      "it must be at most 18446744073709551",
		"argdist -z 127":                       "it must be 1 to 126",
		"trace -Z 0 x":                         "it must be at least 1",
		"memleak --older 9223372036855":        "it must be at most 9223372036854",
		"memleak --max-allocations 4294967295": "it must be 1 to 16777216",
		"profile -f --output json 1":           "--folded and --output json cannot be combined",
		"stackcount --output json -f x":        "--folded and --output json cannot be combined",
		"memleak --folded=true --output=pprof": "--folded and --output pprof cannot be combined",
		"offcputime --output svg -f 1":         "--folded and --output svg cannot be combined",
		"offwaketime -f --output text":         "--folded and --output text cannot be combined",
		"wakeuptime -f --output html":          "--folded and --output html cannot be combined",
		"tcplife -s --output json":             "--csv and --output json cannot be combined",
		"tcpstates --output text --csv":        "--csv and --output text cannot be combined",
		"fsslower -j --output json":            "--comma and --output json cannot be combined",
		"ext4slower -c --output text":          "--csv and --output text cannot be combined",
		"biolatency -j --output csv":           "--json and --output csv cannot be combined",
		"profile 1 --duration 3":               "argument duration (1s) and --duration 3s cannot be combined",
		"biosnoop --duration 3 1":              "argument duration (1s) and --duration 3s cannot be combined",
		"offcputime 1 --duration 3":            "argument duration (1s) and --duration 3s cannot be combined",
		"tcpaccept -P 80,0":                    "--port 0: no socket can listen on this port",
		"opensnoop --any-btf":                  "--any-btf needs --btf (or CORESCOPE_BTF)",
		"memleak -O /nosuch":                   "--obj and --symbols-prefix select an allocator of processes",
		"memleak -p 1 -O /nosuch":              "--obj: open /nosuch: no such file or directory",
		"biolatency --duration 0":              "0 is not greater than zero",
		"ext4dist --operation nosuch":          "--operation nosuch: unknown operation (use read, write, open, fsync or getattr)",
	} {
		args := strings.Fields(line)
		_, err := byName(t, args[0]).Facts(args[1:]...)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "usage: ") {
			t.Errorf("%s: %v, want usage: ... %s", line, err, want)
		}
	}
}

// TestMissingProbe expects the same message of all tools that need a probe.
func TestMissingProbe(t *testing.T) {
	for _, name := range []string{"funccount", "funcinterval", "funclatency", "funcslower", "stackcount", "stacksnoop", "trace", "argdist", "ksnoop"} {
		var out, errOut bytes.Buffer
		code := tool.Run(t.Context(), byName(t, name), nil, &out, &errOut)
		if want := name + ": usage: missing probe"; code != tool.ExitUsage || !strings.HasPrefix(errOut.String(), want) {
			t.Errorf("%s: exit code %d, %q, want 2 and %q", name, code, &errOut, want)
		}
	}
}

func byName(t *testing.T, name string) *tool.Tool {
	t.Helper()
	for _, tl := range tools.All() {
		if as := tl.As(name); as != nil {
			return as
		}
	}
	t.Fatalf("unknown tool %s", name)
	return nil
}

// negative returns the flags that accept negative numbers, in all tools or in one; zero those that accept 0,
// in all tools or in one, with its meaning.
func negative() []string { return []string{"state", "cpu", "biolatpcts interval"} }

func zero() map[string]string {
	return map[string]string{
		"state": "tasks that could run on", "cpu": "the first CPU", "min-block-time": "all waits", "max-block-time": "no limit",
		"min": "all", "min-ms": "all", "min-us": "all", "min_ms": "all", "min_us": "all", "time": "all", "minimum": "all", "threshold": "all", "older": "all", "min-size": "all", "max-size": "allocations of no bytes",
		"max-buffer-size": "no data", "level": "nothing", "stack-storage-size": "nothing", "hash-storage-size": "nothing",
		"port": "port 0", "localport": "port 0", "remoteport": "port 0", "lport": "port 0", "rport": "port 0",
		"ports": "port 0", "pcts": "the minimum", "vcpu": "the first vCPU",
		"syscount interval":   "one report, at the end",
		"ucalls interval":     "one report, at the end",
		"uobjnew interval":    "one report, at the end",
		"ppchcalls interval":  "one report, at the end",
		"packetsnoop snaplen": "the maximum",
	}
}

// TestNumbersHaveBounds checks that negative numbers are rejected, and 0 where it is meaningless.
func TestNumbersHaveBounds(t *testing.T) {
	for _, tl := range tools.All() {
		facts, err := tl.Facts()
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range facts.Flags {
			for _, f := range g.Flags {
				if f.Arg == "" && f.Position == "" {
					continue
				}
				name, parse := f.Long, func(v string) error { _, err := tl.Facts("--" + f.Long + "=" + v); return err }
				if f.Position != "" {
					name, parse = f.Position, func(v string) error { return positional(tl, facts, f.Position, v) }
				}
				if err := parse("NaN"); err == nil || !strings.Contains(err.Error(), `"NaN" is not a`) {
					continue // the flag accepts any text
				}
				if err := parse("-1"); err == nil && !slices.Contains(negative(), name) && !slices.Contains(negative(), tl.Name+" "+name) {
					t.Errorf("%s: %s accepts -1", tl.Name, name)
				}
				if err := parse("0"); err == nil && zero()[name] == "" && zero()[tl.Name+" "+name] == "" {
					t.Errorf("%s: %s accepts 0: reject it, or add its meaning to zero()", tl.Name, name)
				}
			}
		}
	}
}

// positional reads a value as a positional argument, with 1 for those before it, except a language,
// which can be left out.
func positional(tl *tool.Tool, facts *document.Tool, name, v string) error {
	args := []string{"--"}
	for _, f := range facts.Flags[0].Flags {
		if f.Position == name {
			break
		}
		if f.Position != "" && f.Position != "language" {
			args = append(args, "1")
		}
	}
	_, err := tl.Facts(append(args, v)...)
	return err
}

// TestMissingIDs checks that nonexistent IDs are rejected before anything is attached.
func TestMissingIDs(t *testing.T) {
	const tooLarge = "4194304" // the kernel's limit of PIDs, which none reaches
	for _, tl := range tools.All() {
		facts, err := tl.Facts()
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{"pid", "tid", "ppid", "pid-netns", "cpu"} {
			if !hasFlag(facts, flag) {
				continue
			}
			var out, errOut bytes.Buffer
			code := tool.Run(t.Context(), tl, []string{"--" + flag, tooLarge, "--duration", "1ms"}, &out, &errOut)
			want := tl.Name + ": usage: --" + flag + " " + tooLarge + ": no such "
			if code != tool.ExitUsage || !strings.HasPrefix(errOut.String(), want) || out.Len() > 0 {
				t.Errorf("%s --%s %s: exit code %d, %q %q", tl.Name, flag, tooLarge, code, errOut.String(), out.String())
			}
		}
	}
}

func hasFlag(f *document.Tool, name string) bool {
	for _, g := range f.Flags {
		for _, flag := range g.Flags {
			if flag.Long == name {
				return true
			}
		}
	}
	return false
}
