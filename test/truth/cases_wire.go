package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
)

const wireProgram = "python3 script over a delayed device"

// wire is a script that transfers data over a device with a round trip of 40 ms, in a network
// namespace of its own, and prints what it has measured. On one connection five packets are lost.
const wire = `
import ctypes, fcntl, heapq, json, os, select, socket, struct, subprocess, threading, time

# A network namespace with a device whose other end is this process: it sends each packet back with
# source and destination exchanged, so that 192.0.2.2 is a delayed mirror of this host.
if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):
    raise OSError(ctypes.get_errno(), "unshare")
# The script must not wait for a CPU: it is the reference.
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"truth0", 0x1001))
for args in ("addr add 192.0.2.1/24 dev truth0", "link set truth0 up", "link set lo up"):
    subprocess.run(["ip"] + args.split(), check=True)
DELAY, PORT, BULK = 0.02, 7801, 7803
drops = 0

def wire():
    global drops
    queue, n = [], 0
    while True:
        wait = max(0, queue[0][0] - time.monotonic()) if queue else None
        for _ in select.select([tun], [], [], wait)[0]:
            try:
                p = os.read(tun, 65536)
            except BlockingIOError:
                break
            if p[0] >> 4 != 4:
                continue
            if drops and len(p) > 500:
                drops -= 1
                continue
            n += 1
            heapq.heappush(queue, (time.monotonic() + DELAY, n, p[:12] + p[16:20] + p[12:16] + p[20:]))
        while queue and queue[0][0] <= time.monotonic():
            os.write(tun, heapq.heappop(queue)[2])

def info(s, size=104):
    return s.getsockopt(socket.IPPROTO_TCP, 11, size)

out = {"pid": os.getpid(), "connect_ms": [], "rtt_us": [], "wait_ms": []}

def serve(listener, connections):
    for _ in range(connections):
        c, _ = listener.accept()
        for _ in range(5 if connections > 1 else 0):
            select.select([c], [], [])
            start = time.monotonic()
            time.sleep(0.03)
            c.recv(100)
            out["wait_ms"].append((time.monotonic() - start) * 1e3)
            c.send(b"pong")
        while c.recv(1 << 20):
            pass
        c.close()

threading.Thread(target=wire, daemon=True).start()
servers = []
for port, connections in ((PORT, 3), (BULK, 1)):
    listener = socket.create_server(("192.0.2.1", port))
    servers.append(threading.Thread(target=serve, args=(listener, connections)))
    servers[-1].start()
for i in range(4):
    start = time.monotonic()
    s = socket.create_connection(("192.0.2.2", PORT if i < 3 else BULK))
    out["connect_ms"].append((time.monotonic() - start) * 1e3)
    s.setsockopt(socket.IPPROTO_TCP, 13, b"reno")
    for _ in range(5 if i < 3 else 0):
        out["rtt_us"].append(struct.unpack_from("I", info(s), 68)[0])
        s.send(b"ping")
        s.recv(100)
    if i == 3:
        states, changes, gap = [0.0] * 5, 0, 0.0
        s.setblocking(False)
        left, before, last, end = 150000, 0, time.monotonic(), None
        while end is None or time.monotonic() < end:
            if left:
                try:
                    left -= s.send(b"x" * min(left, 10000))
                except BlockingIOError:
                    pass
                if left < 100000 and not changes:
                    drops, changes = 5, 1
            elif end is None:
                end = time.monotonic() + 1
            now_info, now = info(s), time.monotonic()
            state = now_info[1]
            out["rtt_us"].append(struct.unpack_from("I", now_info, 68)[0])
            states[before] += now - last
            gap = max(gap, now - last)
            before, last = state, now
            time.sleep(0.0005)
        out["recovery_ms"], out["gap_ms"] = states[3] * 1e3, gap * 1e3
        s.setblocking(True)
    s.shutdown(socket.SHUT_WR)
    s.recv(1)
    s.close()
for t in servers:
    t.join()
full = socket.create_server(("127.0.0.1", 7802), backlog=16)
waiting = [socket.create_connection(("127.0.0.1", 7802)) for _ in range(10)]
out["recv_q"] = int(subprocess.run(["ss", "-Hltn", "sport = 7802"], capture_output=True, text=True).stdout.split()[1])
for line in open("/proc/self/net/dev"):
    name, _, rest = line.partition(":")
    if name.strip() == "truth0":
        f = [int(x) for x in rest.split()]
        out.update(rx_bytes=f[0], rx_packets=f[1], tx_bytes=f[8], tx_packets=f[9])
out["rtt_us"] = [min(out["rtt_us"]), max(out["rtt_us"])]
for key in ("connect_ms", "wait_ms"):
    out[key + "_sum"] = sum(out.pop(key))
print(json.dumps(out), flush=True)
os._exit(0)
`

// wired is the report of the script.
type wired struct {
	PID       float64   `json:"pid"`
	ConnectMs float64   `json:"connect_ms_sum"`
	WaitMs    float64   `json:"wait_ms_sum"`
	RTT       []float64 `json:"rtt_us"` // least and greatest of all samples
	Recovery  float64   `json:"recovery_ms"`
	Gap       float64   `json:"gap_ms"` // longest time between two readings of the state
	RecvQ     float64   `json:"recv_q"`
	RxBytes   float64   `json:"rx_bytes"`
	RxPackets float64   `json:"rx_packets"`
	TxBytes   float64   `json:"tx_bytes"`
	TxPackets float64   `json:"tx_packets"`
}

func wireCases() []comparison {
	needs := []string{"python3", "ip", "ss"}
	return []comparison{
		{"tcpconnlat", wireProgram, "the script's clock", needs, wireConnects},
		{"tcprtt", wireProgram, "TCP_INFO", needs, wireRoundTrips},
		{"tcppktlat", wireProgram, "the script's clock", needs, wireReads},
		{"tcpcong", wireProgram, "TCP_INFO, every 0.5 ms", needs, wireRecovery},
		{"tcpsynbl", wireProgram, "ss -ltn", needs, wireBacklog},
		{"netqtop", wireProgram, "/proc/net/dev", needs, wirePackets},
		{"sslsnoop", tlsProgram, "the script's log", []string{"python3", "openssl"}, sslsnoop},
		{"ssllatency", tlsProgram, "the script's log", []string{"python3", "openssl"}, ssllatency},
	}
}

// observeWire runs the script under a tool.
func (m *machine) observeWire(ctx context.Context, args ...string) (*observed, *wired, error) {
	w := &wired{}
	out, err := m.observeScript(ctx, w, wire, args...)
	return out, w, err
}

// observeScript runs a Python script under a tool and decodes what it prints.
func (m *machine) observeScript(ctx context.Context, report any, script string, args ...string) (*observed, error) {
	python, err := output(ctx, "python3", "-c", "import sys; print(sys.executable)")
	if err != nil {
		return nil, err
	}
	return m.observe(ctx, func() error {
		text, err := output(ctx, strings.TrimSpace(python), "-c", script)
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text), report); err != nil {
			return fmt.Errorf("decode report of the script: %w", err)
		}
		return nil
	}, args...)
}

// of returns the rows of a process.
func (o *observed) of(pid float64) *observed {
	out := &observed{summary: o.summary}
	for _, r := range o.rows {
		if r.num("pid") == pid {
			out.rows = append(out.rows, r)
		}
	}
	return out
}

func wireConnects(ctx context.Context, m *machine) ([]figure, error) {
	out, script, err := m.observeWire(ctx, "tcpconnlat", "--filter", `raddr == "192.0.2.2"`)
	if err != nil {
		return nil, err
	}
	ours := out.of(script.PID).sum("duration_ns") / 1e6
	return []figure{{"time of four connects in ms", ours, script.ConnectMs, script.ConnectMs/10 + 2, "10 % and 2 ms: the script also measures itself, and waits for a CPU"}}, nil
}

func wireRoundTrips(ctx context.Context, m *machine) ([]figure, error) {
	out, script, err := m.observeWire(ctx, "tcprtt", "--raddr", "192.0.2.2", "--byraddr")
	if err != nil {
		return nil, err
	}
	least, greatest := 0.0, 0.0
	for _, r := range out.rows {
		least, greatest = r.num("min"), r.num("max")
	}
	const why = "5 %: the script reads it at other moments"
	return []figure{
		{"least smoothed round-trip time in us", least, script.RTT[0], script.RTT[0] / 20, why},
		{"greatest smoothed round-trip time in us", greatest, script.RTT[1], script.RTT[1] / 20, why},
	}, nil
}

func wireReads(ctx context.Context, m *machine) ([]figure, error) {
	out, script, err := m.observeWire(ctx, "tcppktlat", "--lport", "7801")
	if err != nil {
		return nil, err
	}
	out = out.of(script.PID)
	return []figure{
		{"reads of received data", float64(len(out.rows)) + out.lost(), 15, 0, ""},
		{"time until these reads in ms", out.sum("latency_ns") / 1e6, script.WaitMs, script.WaitMs / 10, "10 %: the script's time begins when it runs"},
	}, nil
}

func wireRecovery(ctx context.Context, m *machine) ([]figure, error) {
	out, script, err := m.observeWire(ctx, "tcpcong", "--remoteport", "7803", "3600")
	if err != nil {
		return nil, err
	}
	return []figure{{"time in Recovery in ms", out.sum("recovery_ns") / 1e6, script.Recovery, 2*script.Gap + 1, "1 ms, and twice the longest time between two readings"}}, nil
}

func wireBacklog(ctx context.Context, m *machine) ([]figure, error) {
	out, script, err := m.observeWire(ctx, "tcpsynbl", "--port", "7802")
	if err != nil {
		return nil, err
	}
	greatest := 0.0
	for _, r := range out.rows {
		greatest = max(greatest, r.num("max"))
	}
	return []figure{
		{"connections that wait for accept", out.sum("count") + out.lost(), script.RecvQ, 0, ""},
		{"queue before the last one, plus one", greatest + 1, script.RecvQ, 0, ""},
	}, nil
}

func wirePackets(ctx context.Context, m *machine) ([]figure, error) {
	out, script, err := m.observeWire(ctx, "netqtop", "--name", "truth0", "-i", "3600")
	if err != nil {
		return nil, err
	}
	rx, tx := out.where("direction", "RX"), out.where("direction", "TX")
	const why = "packets between the reading and the end of the script"
	return []figure{
		{"packets received", rx.sum("packets"), script.RxPackets, 4, why},
		{"bytes received", rx.sum("bytes"), script.RxBytes, 4 * 1500, why},
		{"packets sent", tx.sum("packets"), script.TxPackets, 4, why},
		{"bytes sent", tx.sum("bytes"), script.TxBytes, 4 * 1500, why},
	}, nil
}

const tlsProgram = "python3 script, TLS"

// tlsScript transfers data over TLS connections to itself. FILE_CERT and FILE_KEY are replaced.
const tlsScript = `
import json, os, socket, ssl, threading, time

server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
server.load_cert_chain("FILE_CERT", "FILE_KEY")
client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
listener = socket.create_server(("127.0.0.1", 0))
out = {"pid": os.getpid(), "reads": 0, "writes": 0, "slowest_ms": 0.0}

def serve():
    for _ in range(5):
        s = server.wrap_socket(listener.accept()[0], server_side=True)
        for i in range(10):
            data = s.read(100)
            if i == 3:
                time.sleep(0.05)
            s.write(data)
        s.close()

t = threading.Thread(target=serve)
t.start()
for _ in range(5):
    s = client.wrap_socket(socket.create_connection(listener.getsockname()))
    for _ in range(10):
        s.write(b"x" * 50)
        start = time.monotonic()
        s.read(100)
        out["slowest_ms"] = max(out["slowest_ms"], (time.monotonic() - start) * 1e3)
        out["reads"] += 2
        out["writes"] += 2
    s.close()
t.join()
print(json.dumps(out))
`

type tlsReport struct {
	PID     float64 `json:"pid"`
	Reads   float64 `json:"reads"`
	Writes  float64 `json:"writes"`
	Slowest float64 `json:"slowest_ms"`
}

// observeTLS runs the script under a tool.
func (m *machine) observeTLS(ctx context.Context, args ...string) (*observed, *tlsReport, error) {
	cert, key := m.path("tls.cert"), m.path("tls.key")
	if _, err := output(ctx, "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
		"-days", "1", "-subj", "/CN=localhost"); err != nil {
		return nil, nil, err
	}
	stop, err := mapTLS(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	report := &tlsReport{}
	out, err := m.observeScript(ctx, report, strings.NewReplacer("FILE_CERT", cert, "FILE_KEY", key).Replace(tlsScript), args...)
	return out, report, err
}

// mapTLS starts a process that maps the TLS library, so that it is traced before the script begins.
func mapTLS(ctx context.Context) (stop func(), err error) {
	cmd := exec.CommandContext(ctx, "python3", "-c", "import ssl, sys; print(flush=True); sys.stdin.read()")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start python3: %w", err)
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("map TLS library: %w", err)
	}
	return func() {
		stdin.Close()
		_ = cmd.Wait() // its result is not used
	}, nil
}

func (r *tlsReport) figures(reads, writes, slowestMs float64) []figure {
	return []figure{
		{"reads", reads, r.Reads, 0, ""},
		{"writes", writes, r.Writes, 0, ""},
		{"slowest read in ms", slowestMs, r.Slowest, r.Slowest/10 + 2, "10 % and 2 ms: the script measures around the call, and waits for a CPU"},
	}
}

func sslsnoop(ctx context.Context, m *machine) ([]figure, error) {
	out, report, err := m.observeTLS(ctx, "sslsnoop", "--no-crypto")
	if err != nil {
		return nil, err
	}
	out = out.of(report.PID)
	slowest := 0.0
	for _, r := range out.where("function", "SSL_read_ex").rows {
		slowest = max(slowest, r.num("delta_ns")/1e6)
	}
	calls := func(name string) float64 { return float64(len(out.where("function", name).rows)) }
	return report.figures(calls("SSL_read_ex")+out.lost(), calls("SSL_write_ex"), slowest), nil
}

func ssllatency(ctx context.Context, m *machine) ([]figure, error) {
	out, report, err := m.observeTLS(ctx, "ssllatency", "--no-crypto", "--pids")
	if err != nil {
		return nil, err
	}
	counts, slowest := map[string]float64{}, 0.0
	for _, r := range out.rows {
		key, _ := r["key"].(map[string]any)
		if row(key).num("pid") != report.PID {
			continue
		}
		counts[row(key).str("function")] += r.num("count")
		if row(key).str("function") == "SSL_read_ex" {
			slowest = max(slowest, r.num("max")/1e3)
		}
	}
	return report.figures(counts["SSL_read_ex"]+out.lost(), counts["SSL_write_ex"], slowest), nil
}
