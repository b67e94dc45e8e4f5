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
	Kind   string `json:"kind" help:"attach type, as in --hook HOOK=KIND"`
	Where  string `json:"where" help:"attach points of its programs"`
	Taken  bool   `json:"taken" help:"whether the tool uses this attach type"`
	Result string `json:"result" help:"used; works, if an earlier attach type is used; otherwise the reason why it does not work"`
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

// explainAll lists the attach types of all hooks, in the order in which they are tried. A stand-in
// is used only if no attach type of the hook that it replaces works.
func explainAll(tried map[string][]probe.Attempt, pairs []StandIn) []Explanation {
	all := []Explanation{}
	for _, hook := range slices.Sorted(maps.Keys(tried)) {
		isUnneeded := slices.ContainsFunc(pairs, func(s StandIn) bool { return s.Hook == hook && works(tried[s.For]) })
		all = append(all, explainHook(hook, tried[hook], isUnneeded)...)
	}
	return all
}

// works reports whether one of the attach types of a hook works.
func works(attempts []probe.Attempt) bool {
	return slices.ContainsFunc(attempts, func(a probe.Attempt) bool { return a.Err == nil })
}

// explainHook lists the attach types of a hook. The first one that works is used, unless isUnneeded
// is set.
func explainHook(hook string, attempts []probe.Attempt, isUnneeded bool) []Explanation {
	var all []Explanation
	isUsed := isUnneeded
	for _, a := range attempts {
		e := Explanation{Hook: hook, Kind: a.Variant.Kind, Where: a.Variant.String(), Result: probe.Reason(a.Err)}
		if a.Err == nil && !isUsed {
			isUsed, e.Taken, e.Result = true, true, "used"
		}
		if e.Returns = a.Returns; e.Returns != "" {
			e.Result += "; " + e.Returns
		}
		all = append(all, e)
	}
	return all
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
