#!/bin/sh
# Go tests with -race. Without Go or a C compiler they are skipped in one line; in CI that is a failure.
set -eu
cd "$(dirname "$0")/../.."
if [ ! -x bin/heeler-agent ]; then
    echo "heeler: Go tests skipped: no Go 1.24 with a C compiler"
    [ "${CI:-}" != true ] || exit 1
    exit 0
fi
for module in schemas/go agent-go; do
    (cd $module && go test -race ./...)
done
