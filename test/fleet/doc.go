// Package fleet tests corescope-agent with real components: Prometheus and the OpenTelemetry Collector,
// which scripts/fleet.sh installs in the user's cache. Each test compares what a component stored with
// what corescope's tools, observing the same workload at the same time, printed. A test whose component is
// not installed is skipped.
package fleet
