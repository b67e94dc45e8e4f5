package tcp

// Times are the options for the columns with times.
type Times struct {
	Time      bool `flag:"time,T" help:"show the time"`
	Timestamp bool `flag:"timestamp,t" help:"show seconds since the start"`
}

// Columns lists the keys of the selected columns.
func (o *Times) Columns() []string {
	var cols []string
	if o.Time {
		cols = append(cols, "time")
	}
	if o.Timestamp {
		cols = append(cols, "elapsed_ns")
	}
	return cols
}

// Wide is the option for columns with IPv6 addresses.
type Wide struct {
	Wide bool `flag:"wide,w" help:"make address columns wide enough for IPv6"`
}

// Widths returns the widths of the address columns with these keys, nil for the default.
func (o *Wide) Widths(keys ...string) map[string]int {
	if !o.Wide {
		return nil
	}
	const widest = len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	widths := map[string]int{}
	for _, key := range keys {
		widths[key] = widest
	}
	return widths
}

// CSV is the option -s of BCC.
type CSV struct {
	CSV bool `flag:"csv,s" sets:"output=csv" help:"same as --output csv"`
}

// Version is the column with the IP version of a row.
type Version struct {
	Family uint8 `json:"family" col:"IP,width=2" help:"IP version on the wire: 4 or 6"`
}
