package tcplife

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// lines runs the tool on one connection and returns its lines about it, after the header.
func lines(t *testing.T, args []string, load func() *tcptest.Pair) (p *tcptest.Pair, out []string) {
	t.Helper()
	text := tooltest.Text(t, Tool, args, func() { p = load() })
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	out = all[:1]
	for _, line := range all[1:] {
		if strings.Contains(line, strconv.Itoa(p.LPort)) && strings.Contains(line, strconv.Itoa(p.RPort)) {
			out = append(out, line)
		}
	}
	return p, out
}

func exchange(t *testing.T, addr, host string) *tcptest.Pair {
	p := tcptest.Connect(t, tcptest.Listen(t, addr), host, 0)
	p.Send(p.Client, p.Server, fromClient)
	p.Send(p.Server, p.Client, fromServer)
	p.Fin(p.Client, p.Server)
	return p
}

// TestText checks the columns and widths of libbpf-tools.
func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	for _, c := range []struct {
		name, header, row string
		args              []string
		addr, host        string
	}{
		{"usual", "PID     COMM             LADDR           LPORT RADDR           RPORT TX_KB  RX_KB  MS",
			`%-7d %-16s 127.0.0.1       %-5d 127.0.0.1       %-5d 4.88   1205.63 \d+\.\d\d`, nil, "127.0.0.1:0", "127.0.0.1"},
		{"wide", "PID     COMM             LADDR                                   LPORT RADDR                                   RPORT TX_KB  RX_KB  MS",
			`%-7d %-16s ::1                                     %-5d ::1                                     %-5d 4.88   1205.63 \d+\.\d\d`,
			[]string{"-w"}, "[::1]:0", "::1"},
		{"times", "TIME     TIME(s)   PID     COMM             LADDR           LPORT RADDR           RPORT TX_KB  RX_KB  MS",
			`\d\d:\d\d:\d\d \d\.\d{3}     %-7d %-16s 127.0.0.1       %-5d 127.0.0.1       %-5d 4.88   1205.63 \d+\.\d\d`,
			[]string{"-T", "-t"}, "127.0.0.1:0", "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, out := lines(t, c.args, func() *tcptest.Pair { return exchange(t, c.addr, c.host) })
			if out[0] != c.header {
				t.Errorf("header %q, want %q", out[0], c.header)
			}
			want := regexp.MustCompile("^" + fmt.Sprintf(c.row, os.Getpid(), tcptest.Comm(), p.LPort, p.RPort) + "$")
			if len(out) != 3 || !want.MatchString(out[1]) && !want.MatchString(out[2]) {
				t.Errorf("rows %q, want one like %s", out[1:], want)
			}
		})
	}
}

// TestTextOfNobody checks the column positions of a row without an owner.
func TestTextOfNobody(t *testing.T) {
	tooltest.AnyAttachType(t)
	_, out := lines(t, nil, func() *tcptest.Pair { return neverAccepted(t) })
	n := 0
	for _, line := range out[1:] {
		if strings.HasPrefix(line, "0       -                127.0.0.1 ") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d rows without an owner, want 1: %q", n, out)
	}
}

// TestCSV checks the keys of JSON and raw numbers, with --csv and --output csv.
func TestCSV(t *testing.T) {
	tooltest.AnyAttachType(t)
	for _, args := range [][]string{{"-s"}, {"--output", "csv"}} {
		p, out := lines(t, args, func() *tcptest.Pair { return exchange(t, "127.0.0.1:0", "127.0.0.1") })
		rows, err := csv.NewReader(strings.NewReader(strings.Join(out, "\n"))).ReadAll()
		if err != nil || len(rows) != 3 {
			t.Fatalf("%q: %d rows (%v): %q", args, len(rows), err, out)
		}
		want := map[string]string{
			"pid": strconv.Itoa(os.Getpid()), "comm": tcptest.Comm(), "laddr": "127.0.0.1", "raddr": "127.0.0.1",
			"lport": strconv.Itoa(p.LPort), "rport": strconv.Itoa(p.RPort), "direction": "active", "partial": "false",
			"tx_bytes": strconv.Itoa(fromClient), "rx_bytes": strconv.Itoa(fromServer), "error": "",
		}
		n := 0
		for _, r := range rows[1:] {
			got := map[string]string{}
			for i, key := range rows[0] {
				got[key] = r[i]
			}
			if got["direction"] != "active" {
				continue
			}
			n++
			for key, w := range want {
				if got[key] != w {
					t.Errorf("%q: %s is %q, want %q", args, key, got[key], w)
				}
			}
		}
		if n != 1 {
			t.Errorf("%q: %d rows of the client, want 1: %q", args, n, out)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-L", "65536"}, {"-D", "http"}, {"--pid", "-1"}} {
		var out, errOut bytes.Buffer
		code := tool.Run(t.Context(), Tool, args, &out, &errOut)
		if code != tool.ExitUsage || out.Len() > 0 || strings.Count(errOut.String(), "\n") != 1 {
			t.Errorf("%q: exit code %d, %q", args, code, &errOut)
		}
	}
}
