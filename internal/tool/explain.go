package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/olekukonko/tablewriter"

	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
)

// Explanation is one attach type of a hook, and the result of trying it. Type is set on a line of
// its own.
type Explanation struct {
	Type   string `json:"type,omitempty"`
	Hook   string `json:"hook" help:"name of the hook"`
	Kind   string `json:"kind" help:"kind of the way, for --hook HOOK=KIND"`
	Where  string `json:"where" help:"its programs' places in the kernel"`
	Taken  bool   `json:"taken" help:"whether it is the first that works"`
	Result string `json:"result" help:"taken, works, or why it does not work"`
	// Returns is set for programs at the returns of user functions.
	Returns string `json:"returns,omitempty" help:"how programs are attached to the returns of user functions"`
}

// explain writes all attach types of all hooks, best first, and which one is used.
func (s *Session) explain(w io.Writer) error {
	tried, err := s.Objects.Explain()
	if err != nil {
		return err
	}
	all := explainAll(tried, s.standIns)
	if output.Format(s.common.Output) == output.JSON {
		enc := json.NewEncoder(w)
		for _, e := range all {
			e.Type = "explain"
			if err := enc.Encode(e); err != nil {
				return fmt.Errorf("write explanation: %w", err)
			}
		}
		return nil
	}
	return WriteTable(w, []string{"HOOK", "KIND", "WHERE", "RESULT"}, all, func(e Explanation) []string {
		return []string{e.Hook, e.Kind, e.Where, e.Result}
	})
}

// explainAll has the ways to each hook, best first. A stand-in is taken only where what it
// stands in for has no way.
func explainAll(tried map[string][]probe.Attempt, pairs []StandIn) []Explanation {
	all := []Explanation{}
	for _, hook := range slices.Sorted(maps.Keys(tried)) {
		isSpare := slices.ContainsFunc(pairs, func(s StandIn) bool { return s.Hook == hook && works(tried[s.For]) })
		all = append(all, explainHook(hook, tried[hook], isSpare)...)
	}
	return all
}

// works tells whether there is a way to a hook.
func works(attempts []probe.Attempt) bool {
	return slices.ContainsFunc(attempts, func(a probe.Attempt) bool { return a.Err == nil })
}

func explainHook(hook string, attempts []probe.Attempt, taken bool) []Explanation {
	var Out []Explanation
	for _, a := range attempts {
		e := Explanation{Hook: hook, Kind: a.Variant.Kind, Where: a.Variant.String(), Result: probe.Reason(a.Err)}
		if a.Err == nil && !taken {
			taken, e.Taken, e.Result = true, true, "taken"
		}
		if e.Returns = a.Returns; e.Returns != "" {
			e.Result += "; " + e.Returns
		}
		Out = append(Out, e)
	}
	return Out
}

// WriteTable writes a table with headers and without borders.
func WriteTable[T any](w io.Writer, headers []string, rows []T, cells func(T) []string) error {
	var text bytes.Buffer
	t := tablewriter.NewWriter(&text)
	t.SetHeader(headers)
	t.SetAutoFormatHeaders(false)
	t.SetAutoWrapText(false)
	t.SetHeaderAlignment(tablewriter.ALIGN_LEFT)
	t.SetAlignment(tablewriter.ALIGN_LEFT)
	t.SetBorder(false)
	t.SetHeaderLine(false)
	t.SetColumnSeparator("")
	t.SetTablePadding("  ")
	t.SetNoWhiteSpace(true)
	for _, r := range rows {
		t.Append(cells(r))
	}
	t.Render()
	for line := range bytes.Lines(text.Bytes()) {
		if _, err := fmt.Fprintf(w, "%s\n", bytes.TrimRight(line, " \n")); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	return nil
}
