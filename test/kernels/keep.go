package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// keep stores the results of each tool, so that the document can combine results of several runs.
func (h *runner) keep(r *report) error {
	for name, found := range r.tools {
		text, err := json.MarshalIndent(found, "", "\t")
		if err != nil {
			return fmt.Errorf("keep results: %w", err)
		}
		if err := os.WriteFile(h.kept(r.kernel.name, name), text, 0o644); err != nil {
			return fmt.Errorf("keep results: %w", err)
		}
	}
	return nil
}

// keepFinished stores the results of the tools that are tested when the run is stopped.
func (h *runner) keepFinished(r *report) error {
	if isShort() {
		return nil
	}
	part := *r
	part.tools = maps.Clone(r.tools)
	maps.DeleteFunc(part.tools, func(_ string, found *result) bool { return found.Error == endedEarly })
	return h.keep(&part)
}

func (h *runner) load(kernel, tool string) (*result, error) {
	text, err := os.ReadFile(h.kept(kernel, tool))
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	var found result
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	return &found, nil
}

func (h *runner) kept(kernel, tool string) string {
	return filepath.Join(h.dir, kernel, tool+".json")
}

// commit returns the tested commit, followed by "and changes" if the tree has uncommitted changes.
func commit(ctx context.Context) (string, error) {
	hash, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("name commit: %w", err)
	}
	more, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--", ".", ":!"+docPath).Output()
	if err != nil {
		return "", fmt.Errorf("name commit: %w", err)
	}
	if len(more) > 0 {
		return strings.TrimSpace(string(hash)) + " and changes", nil
	}
	return strings.TrimSpace(string(hash)), nil
}
