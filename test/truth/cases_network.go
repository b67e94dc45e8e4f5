package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const curlProgram = "curl, 20 downloads"

func networkCases() []comparison {
	needs := []string{"curl"}
	return []comparison{
		{"tcplife", curlProgram, "curl --write-out", needs, tcplife},
		{"tcptop", curlProgram, "curl --write-out", needs, tcptop},
		{"tcpconnect", curlProgram, "curl --write-out", needs, tcpconnect},
		{"tcpaccept", curlProgram, "curl --write-out", needs, tcpaccept},
		{"tcpstates", curlProgram, "curl --write-out", needs, tcpstates},
		{"tcpconnlat", curlProgram, "curl --write-out", needs, tcpconnlat},
		{"tcptracer", curlProgram, "curl --write-out", needs, tcptracer},
		{"tcpsubnet", curlProgram, "curl --write-out", needs, tcpsubnet},
		{"tcprtt", curlProgram, "curl --write-out", needs, tcprtt},
		{"packetsnoop", curlProgram, "tcpdump -w", []string{"curl", "ss", "tcpdump"}, packetsnoop},
		{"sslsniff", "curl of openssl s_server", "SHA-256 of the file", []string{"curl", "openssl"}, sslsniff},
	}
}

// curled is the sum of curl's reports (--write-out) of its transfers.
type curled struct{ transfers, sent, received, seconds float64 }

// slowPause is the time between two parts of a file that the server sends slowly.
const slowPause = 100 * time.Millisecond

// serve serves a file of 1 MB from this process: with the query "slow", in 3.2 s.
func serve() (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	body := make([]byte, 1<<20)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body))) // avoids chunked encoding, whose headers curl does not count
		for part := range slices.Chunk(body, len(body)/32) {
			if _, slow := r.URL.Query()["slow"]; slow {
				time.Sleep(slowPause)
			}
			_, _ = w.Write(part)
		}
	})}
	go func() { _ = server.Serve(listener) }() // returns when the server is closed
	return "http://" + listener.Addr().String() + "/file", func() { server.Close() }, nil
}

// observeCurl runs twenty downloads under a tool.
func (m *machine) observeCurl(ctx context.Context, args ...string) (*observed, *curled, error) {
	url, stop, err := serve()
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	c := &curled{}
	out, err := m.observe(ctx, func() error {
		for range 20 {
			text, err := output(ctx, "curl", "--silent", "--no-keepalive", "--header", "Connection: close", "--output", "/dev/null",
				"--write-out", "%{size_request} %{size_header} %{size_download} %{time_total}", url)
			if err != nil {
				return err
			}
			var sent, header, download, seconds float64
			if _, err := fmt.Sscan(text, &sent, &header, &download, &seconds); err != nil {
				return fmt.Errorf("read sizes of curl: %w", err)
			}
			c.transfers++
			c.sent += sent
			c.received += header + download
			c.seconds += seconds
		}
		return nil
	}, args...)
	return out, c, err
}

func tcplife(ctx context.Context, m *machine) ([]figure, error) {
	out, curl, err := m.observeCurl(ctx, "tcplife")
	if err != nil {
		return nil, err
	}
	out = out.where("comm", "curl")
	return []figure{
		{"connections of curl", float64(len(out.rows)) + out.lost(), curl.transfers, 0, ""},
		{"bytes that curl sent", out.sum("tx_bytes"), curl.sent, 0, ""},
		{"bytes that curl received", out.sum("rx_bytes"), curl.received, 0, ""},
	}, nil
}

func tcptop(ctx context.Context, m *machine) ([]figure, error) {
	out, curl, err := m.observeCurl(ctx, "tcptop", "3600")
	if err != nil {
		return nil, err
	}
	out = out.where("comm", "curl")
	return []figure{
		{"bytes that curl sent", out.sum("tx_bytes"), curl.sent, 0, ""},
		{"bytes that curl received", out.sum("rx_bytes"), curl.received, 0, ""},
	}, nil
}

func tcpconnect(ctx context.Context, m *machine) ([]figure, error) {
	out, curl, err := m.observeCurl(ctx, "tcpconnect")
	if err != nil {
		return nil, err
	}
	return []figure{{"connects of curl", float64(len(out.where("comm", "curl").rows)) + out.lost(), curl.transfers, 0, ""}}, nil
}

func tcpaccept(ctx context.Context, m *machine) ([]figure, error) {
	out, curl, err := m.observeCurl(ctx, "tcpaccept", "--pid", strconv.Itoa(os.Getpid()))
	if err != nil {
		return nil, err
	}
	return []figure{{"accepts of the server", float64(len(out.rows)) + out.lost(), curl.transfers, 0, ""}}, nil
}

func tcpstates(ctx context.Context, m *machine) ([]figure, error) {
	out, curl, err := m.observeCurl(ctx, "tcpstates")
	if err != nil {
		return nil, err
	}
	established := 0.0
	for _, r := range out.where("comm", "curl").rows {
		if r.str("newstate") == "ESTABLISHED" {
			established++
		}
	}
	return []figure{{"connections of curl that become ESTABLISHED", established + out.lost(), curl.transfers, 0, ""}}, nil
}

// tcpconnlat compares the time of connects with curl's: curl measures around the system calls.
func tcpconnlat(ctx context.Context, m *machine) ([]figure, error) {
	out, curl, err := m.observeCurl(ctx, "tcpconnlat")
	if err != nil {
		return nil, err
	}
	out = out.where("comm", "curl")
	return []figure{
		{"connects of curl", float64(len(out.rows)) + out.lost(), curl.transfers, 0, ""},
		{"connects that took longer than curl's whole transfers", max(0, out.sum("duration_ns")/1e9-curl.seconds), 0, 0, ""},
	}, nil
}

func tcptracer(ctx context.Context, m *machine) ([]figure, error) {
	out, curl, err := m.observeCurl(ctx, "tcptracer")
	if err != nil {
		return nil, err
	}
	ofCurl := out.where("comm", "curl")
	return []figure{
		{"connects of curl", float64(len(ofCurl.where("kind", "connect").rows)) + out.lost(), curl.transfers, 0, ""},
		{"closes of curl", float64(len(ofCurl.where("kind", "close").rows)), curl.transfers, 0, ""},
	}, nil
}

func tcpsubnet(ctx context.Context, m *machine) ([]figure, error) {
	out, curl, err := m.observeCurl(ctx, "tcpsubnet", "-i", "3600", "127.0.0.0/8")
	if err != nil {
		return nil, err
	}
	return []figure{{"bytes sent to 127.0.0.0/8", out.sum("tx_bytes"), curl.sent + curl.received, 0, ""}}, nil
}

// tcprtt compares only bounds: a round trip of the loopback interface is shorter than a transfer.
func tcprtt(ctx context.Context, m *machine) ([]figure, error) {
	out, curl, err := m.observeCurl(ctx, "tcprtt", "--raddr", "127.0.0.1")
	if err != nil {
		return nil, err
	}
	few := max(0, curl.transfers-out.sum("count"))
	longest := 0.0
	for _, r := range out.rows {
		longest = max(longest, r.num("max"))
	}
	return []figure{
		{"connections without a measurement, at least", few, 0, 0, ""},
		{"longest round trip beyond the sum of curl's transfers in us", max(0, longest-curl.seconds*1e6), 0, 0, ""},
	}, nil
}

// sslsniff compares the data of a download with the served file.
func sslsniff(ctx context.Context, m *machine) ([]figure, error) {
	dir := m.path("tls")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	body := make([]byte, 300_000)
	for i := range body {
		body[i] = byte(i * i >> 3)
	}
	if err := os.WriteFile(dir+"/file", body, 0o644); err != nil {
		return nil, fmt.Errorf("write file: %w", err)
	}
	if _, err := output(ctx, "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", dir+"/key", "-out", dir+"/cert",
		"-days", "1", "-subj", "/CN=localhost"); err != nil {
		return nil, err
	}
	port, stop, err := serveTLS(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	out, err := m.observe(ctx, func() error {
		_, err := output(ctx, "curl", "--silent", "--insecure", "--output", dir+"/copy", fmt.Sprintf("https://127.0.0.1:%d/file", port))
		return err
	}, "sslsniff", "--max-buffer-size", "16384")
	if err != nil {
		return nil, err
	}
	var data []byte
	for _, r := range out.where("comm", "curl").rows {
		if r.str("call") == "read" {
			data = append(data, r.bytes("data")...)
		}
	}
	_, content, _ := strings.Cut(string(data), "\r\n\r\n")
	same := math.NaN()
	if sha256.Sum256([]byte(content)) == sha256.Sum256(body) {
		same = 1
	}
	return []figure{
		{"bytes of the file", float64(len(content)), float64(len(body)), 0, ""},
		{"SHA-256 equals that of the file", same, 1, 0, ""},
	}, nil
}
