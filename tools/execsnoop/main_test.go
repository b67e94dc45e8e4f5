package execsnoop

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tool"
)

func TestTrial(t *testing.T) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(tool.Run(ctx, Tool, strings.Fields(os.Getenv("TRIAL")), os.Stdout, os.Stderr))
}
