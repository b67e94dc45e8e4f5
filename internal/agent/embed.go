package agent

import _ "embed"

// DefaultConfig is the text of the default configuration.
//
//go:embed default.yaml
var DefaultConfig []byte
