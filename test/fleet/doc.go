// Package fleet tests corescope-agent with real components: Prometheus, the OpenTelemetry Collector,
// Kubernetes and servers of OpenSSH, which scripts/fleet.sh installs in the user's cache. What a component
// stored is compared with the workload, and with what corescope's tools printed that observed it at the same
// time.
//
// The variable FLEET names the tests that run: prometheus, collector, kubernetes, hosts, churn (16 minutes)
// and figures (which prints those of docs/fleet.md).
package fleet
