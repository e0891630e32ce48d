//go:build tools

// Keeps Prometheus in go.mod: deploy/dev/otelcol.sh builds it from here.
package main

import _ "github.com/prometheus/prometheus/cmd/prometheus"
