package agent

import (
	"context"
	"fmt"
	"net"

	"github.com/corescope/corescope/internal/metric"
	"github.com/corescope/corescope/internal/prometheus"
	"github.com/corescope/corescope/internal/webconfig"
)

// serve serves metrics until the context is done. It returns when it listens.
func (a *Agent) serve(ctx context.Context, c *Config, gather func() []metric.Snapshot) error {
	handler := prometheus.Handler(prometheus.Options{Gather: gather, Ready: a.Ready})
	server, err := webconfig.New(c.WebConfig, handler, func(err error) { a.notify("web_config: %v", err) })
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	go func() {
		if err := server.Serve(listener); err != nil {
			a.notify("serve metrics: %v", err)
		}
	}()
	context.AfterFunc(ctx, func() { server.Close() })
	if c.WebConfig == "" {
		a.notify("metrics are at http://%s/metrics", listener.Addr())
	} else {
		a.notify("metrics are at %s, path /metrics, as %s defines", listener.Addr(), c.WebConfig)
	}
	return nil
}
