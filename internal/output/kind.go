package output

// Kinds of rows: the value of "type" in JSON.
const (
	KindEvent     = "event"
	KindHistogram = "histogram"
	KindRow       = "row" // of a table
)
