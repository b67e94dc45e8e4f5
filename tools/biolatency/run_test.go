package biolatency

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tool"
)

func TestRunX(t *testing.T) {
	args := os.Getenv("XARGS")
	if args == "" {
		t.Skip()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Stderr.WriteString("exit " + string(rune('0'+tool.Run(ctx, Tool, strings.Fields(args), os.Stdout, os.Stderr))) + "\n")
}
