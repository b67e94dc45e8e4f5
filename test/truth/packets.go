package main

import (
	"context"
	"fmt"
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
	expression := "tcp port " + u.Port()
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
	differ := 0
	for i := range min(len(packets), len(reference)) {
		if packets[i] != reference[i] {
			differ++
		}
	}
	return []figure{
		{"packets", float64(len(packets)) + out.lost(), float64(len(reference)), 0, ""},
		{fmt.Sprintf("packets, out of %d, whose bytes differ", len(reference)), float64(differ), 0, 0, ""},
	}, nil
}

// startTcpdump captures to a file, with the largest length that packetsnoop has, until end is called.
func startTcpdump(ctx context.Context, path, expression string) (end func() error, err error) {
	cmd := exec.CommandContext(ctx, "tcpdump", "-i", "lo", "-s", "65280", "-B", "65536", "--immediate-mode", "-w", path, "-Z", "root", expression)
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
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "\t") {
			packets = append(packets, "")
		}
		packets[len(packets)-1] += line
	}
	return packets, nil
}
