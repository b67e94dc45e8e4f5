package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"time"
)

// serveTLS serves the files of a directory with openssl s_server, and returns its port once it
// accepts connections.
func serveTLS(ctx context.Context, dir string) (port int, stop func(), err error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, fmt.Errorf("find a port: %w", err)
	}
	port = free.Addr().(*net.TCPAddr).Port
	free.Close()
	cmd := exec.CommandContext(ctx, "openssl", "s_server", "-accept", "127.0.0.1:"+strconv.Itoa(port),
		"-cert", dir+"/cert", "-key", dir+"/key", "-WWW", "-quiet")
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		return 0, nil, fmt.Errorf("start openssl s_server: %w", err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it is killed below
	}
	for range 1000 {
		conn, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			conn.Close()
			return port, stop, nil
		}
		time.Sleep(10 * time.Millisecond) // wait until it listens
	}
	stop()
	return 0, nil, fmt.Errorf("openssl s_server does not accept connections on port %d", port)
}
