#!/bin/sh
# Build what the tests of OTLP run against: an OpenTelemetry Collector and a Prometheus, from the Go modules that
# tests/otelcol/go.mod pins, into build/otelcol. Does only what is not done yet: three CPU-minutes each the first time.
# Needs Go 1.26 or newer.
set -eu
cd "$(dirname "$0")/../../tests/otelcol"
out=../../build/otelcol
want=$(cat go.mod go.sum main.go ../../deploy/dev/otelcol.sh | cksum | tr ' ' '-')
mkdir -p "$out"
exec 9>"$out/lock"
flock 9     # tests that run beside each other
if [ "$(cat "$out/stamp" 2>/dev/null)" = "$want" ]; then exit 0; fi
# Without the clouds' service discovery Prometheus is half as large; its web page is left out too.
export GOTOOLCHAIN=local GOFLAGS="${GOFLAGS:-} -buildvcs=false" CGO_ENABLED=0
go build -tags remove_all_sd -ldflags='-s -w' -o "$out/otelcol" .
go build -tags remove_all_sd -ldflags='-s -w' -o "$out/prometheus" github.com/prometheus/prometheus/cmd/prometheus
printf '%s' "$want" >"$out/stamp"
