package tool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
)

// explanation is one way to a hook.
type explanation struct {
	Type   string `json:"type"`
	Hook   string `json:"hook"`
	Kind   string `json:"kind"`
	Where  string `json:"where" help:"its programs' places in the kernel"`
	Taken  bool   `json:"taken" help:"whether it is the first that works"`
	Result string `json:"result" help:"taken, works, or why it does not work"`
}

// explain writes every way to every hook, best first, with the one that would be taken.
func (s *session) explain(w io.Writer) error {
	tried, err := s.objects.Explain()
	if err != nil {
		return err
	}
	var all []explanation
	for hook, attempts := range tried {
		all = append(all, explainHook(hook, attempts)...)
	}
	slices.SortStableFunc(all, func(a, b explanation) int { return cmp.Compare(a.Hook, b.Hook) })
	if output.Format(s.common.Output) == output.JSON {
		enc := json.NewEncoder(w)
		for _, e := range all {
			if err := enc.Encode(e); err != nil {
				return fmt.Errorf("write explanation: %w", err)
			}
		}
		return nil
	}
	return table(w, []string{"HOOK", "KIND", "WHERE", "RESULT"}, all, func(e explanation) []string {
		return []string{e.Hook, e.Kind, e.Where, e.Result}
	})
}

func explainHook(hook string, attempts []probe.Attempt) []explanation {
	var out []explanation
	taken := false
	for _, a := range attempts {
		e := explanation{Type: "explain", Hook: hook, Kind: a.Variant.Kind, Where: a.Variant.String(), Result: probe.Reason(a.Err)}
		if a.Err == nil && !taken {
			taken, e.Taken, e.Result = true, true, "taken"
		}
		out = append(out, e)
	}
	return out
}

// table writes rows below headers, without borders.
func table[T any](w io.Writer, headers []string, rows []T, cells func(T) []string) error {
	t := tablewriter.NewTable(w,
		tablewriter.WithRendition(tw.Rendition{
			Borders: tw.BorderNone,
			Settings: tw.Settings{
				Separators: tw.Separators{BetweenColumns: tw.Off, BetweenRows: tw.Off},
				Lines:      tw.LinesNone,
			},
		}),
		tablewriter.WithAlignment(tw.MakeAlign(len(headers), tw.AlignLeft)),
		tablewriter.WithHeaderAlignment(tw.AlignLeft),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithPadding(tw.Padding{Right: "  ", Overwrite: true}),
	)
	t.Header(headers)
	for _, r := range rows {
		if err := t.Append(cells(r)); err != nil {
			return fmt.Errorf("fill table: %w", err)
		}
	}
	if err := t.Render(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}
