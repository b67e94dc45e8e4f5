// Package pyroscope sends profiles to Pyroscope and what has the same HTTP API, such as Grafana Alloy.
package pyroscope

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/metric"
	"github.com/corescope/corescope/internal/push"
)

// Profiles sends profiles. It is safe for concurrent use.
type Profiles struct {
	sender *push.Sender
	labels []metric.Label
}

// New starts to send to a server, such as http://localhost:4040, with labels for all profiles. The
// other options are those of the sender.
func New(server string, labels []metric.Label, o push.Options) (*Profiles, error) {
	o.URL = strings.TrimSuffix(server, "/") + "/ingest"
	o.Gzip = false // the profiles are compressed already
	sender, err := push.New(o)
	if err != nil {
		return nil, err
	}
	return &Profiles{sender, slices.Clone(labels)}, nil
}

// Export sends the profile of a tool, as pprof. It never waits for the network. A profile without
// samples is not sent.
func (p *Profiles) Export(tool string, profile *flame.Profile) error {
	if len(profile.Samples) == 0 {
		return nil
	}
	var body bytes.Buffer
	if err := flame.Pprof(&body, profile); err != nil {
		return fmt.Errorf("encode profile of %s: %w", tool, err)
	}
	until := profile.Begin.Add(profile.Length)
	query := url.Values{
		"name":    {name(tool, p.labels)},
		"format":  {"pprof"},
		"from":    {strconv.FormatInt(profile.Begin.Unix(), 10)},
		"until":   {strconv.FormatInt(max(until.Unix(), profile.Begin.Unix()+1), 10)},
		"spyName": {"corescope"},
	}
	if profile.Period > 0 {
		query.Set("sampleRate", strconv.FormatUint(max(1e9/profile.Period, 1), 10))
	}
	p.sender.Send(push.Request{
		Body: body.Bytes(), ContentType: "application/octet-stream", Query: query, Items: uint64(len(profile.Samples)),
	})
	return nil
}

// name returns the name of a profile with its labels: corescope.offcputime{host=a,unit=nginx}.
// Characters with a meaning there are replaced.
func name(tool string, labels []metric.Label) string {
	var b strings.Builder
	fmt.Fprintf(&b, "corescope.%s{", tool)
	separator := ""
	for _, l := range labels {
		if l.Value == "" || !metric.ValidLabel(l.Name) {
			continue
		}
		value := strings.Map(func(r rune) rune {
			if r < ' ' || strings.ContainsRune("{},=\"", r) {
				return '_'
			}
			return r
		}, strings.ToValidUTF8(l.Value, "\uFFFD"))
		fmt.Fprintf(&b, "%s%s=%s", separator, l.Name, value)
		separator = ","
	}
	return b.String() + "}"
}

// Stats returns the counts of samples, which are the distinct stacks of a profile.
func (p *Profiles) Stats() push.Stats { return p.sender.Stats() }

// Close sends what is waiting, see [push.Sender.Close].
func (p *Profiles) Close(ctx context.Context) error { return p.sender.Close(ctx) }
