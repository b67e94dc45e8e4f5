package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
)

// packetsnoop captures twenty downloads on the loopback interface, while tcpdump does.
func packetsnoop(ctx context.Context, m *machine) ([]figure, error) {
	address, stop, err := serve()
	if err != nil {
		return nil, err
	}
	defer stop()
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", address, err)
	}
	ours, theirs := m.path("ours.pcapng"), m.path("theirs.pcap")
	expression := "port " + u.Port()
	out, err := m.observe(ctx, func() error {
		end, err := startTcpdump(ctx, theirs, expression)
		if err != nil {
			return err
		}
		for range 20 {
			if _, err := output(ctx, "curl", "--silent", "--output", "/dev/null", address); err != nil {
				return err
			}
		}
		if err := awaitCaptured(ctx, theirs, u.Port()); err != nil {
			return err
		}
		return end()
	}, "packetsnoop", "-i", "lo", "-Q", "in", "-w", ours, expression)
	if err != nil {
		return nil, err
	}
	packets, err := printed(ctx, ours)
	if err != nil {
		return nil, err
	}
	reference, err := printed(ctx, theirs)
	if err != nil {
		return nil, err
	}
	return []figure{
		{"packets", float64(len(packets)) + out.lost(), float64(len(reference)), 0, ""},
		{fmt.Sprintf("packets, out of %d and in any order, whose bytes are not in the reference", len(reference)), notIn(packets, reference), 0, 0, ""},
	}, nil
}

// notIn returns how many of the packets the reference does not have. Their order is not compared: if two
// CPUs receive packets at the same time, both observers see both, in an order of their own.
func notIn(packets, reference []string) (n float64) {
	left := map[string]int{}
	for _, p := range reference {
		left[p]++
	}
	for _, p := range packets {
		if left[p] == 0 {
			n++
		} else {
			left[p]--
		}
	}
	return n
}

// awaitCaptured waits until tcpdump has written all packets of the connections to the port: until both
// ends of all connections are closed, and a last packet, which it sends to the same port, is in the file.
func awaitCaptured(ctx context.Context, path, port string) error {
	for open := true; open; {
		states, err := output(ctx, "ss", "-Htan", "sport = "+port+" or dport = "+port)
		if err != nil {
			return err
		}
		open = false
		for line := range strings.Lines(states) {
			open = open || !strings.HasPrefix(line, "LISTEN") && !strings.HasPrefix(line, "TIME-WAIT")
		}
	}
	last, err := net.Dial("udp", "127.0.0.1:"+port)
	if err != nil {
		return fmt.Errorf("make socket: %w", err)
	}
	defer last.Close()
	const text = "the last packet of this capture"
	if _, err := last.Write([]byte(text)); err != nil {
		return fmt.Errorf("send last packet: %w", err)
	}
	for {
		captured, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read capture of tcpdump: %w", err)
		}
		if bytes.Contains(captured, []byte(text)) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for tcpdump: %w", err)
		}
	}
}

// startTcpdump captures to a file, with the largest length that packetsnoop has, until end is called.
func startTcpdump(ctx context.Context, path, expression string) (end func() error, err error) {
	cmd := exec.CommandContext(ctx, "tcpdump", "-i", "lo", "-s", "65280", "-B", "65536", "--immediate-mode", "-U", "-w", path, "-Z", "root", expression)
	messages, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start tcpdump: %w", err)
	}
	if _, err := messages.Read(make([]byte, 1)); err != nil { // "listening on"
		return nil, fmt.Errorf("wait for tcpdump: %w", err)
	}
	return func() error {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			return fmt.Errorf("end tcpdump: %w", err)
		}
		return cmd.Wait()
	}, nil
}

// printed returns the packets of a capture file as tcpdump prints them, in hexadecimal, without time.
func printed(ctx context.Context, path string) ([]string, error) {
	text, err := output(ctx, "tcpdump", "-nn", "-t", "-xx", "-r", path)
	if err != nil {
		return nil, err
	}
	var packets []string
	for text != "" {
		next := 1 + strings.IndexByte(text, '\n')
		for next < len(text) && text[next] == '\t' { // bytes
			next += 1 + strings.IndexByte(text[next:], '\n')
		}
		packets = append(packets, text[:next])
		text = text[next:]
	}
	return packets, nil
}
