#!/bin/sh
# gofmt, go vet and staticcheck, pinned.
set -eu
cd "$(dirname "$0")/../.."
if [ ! -x bin/heeler-agent ]; then
    echo "heeler: Go lint skipped: no Go 1.24 with a C compiler"
    [ "${CI:-}" != true ] || exit 1
    exit 0
fi
unformatted=$(gofmt -l agent-go schemas/go)
[ -z "$unformatted" ] || { echo "gofmt: $unformatted"; exit 1; }
for module in schemas/go agent-go; do
    (cd $module && go vet ./... && GOTOOLCHAIN=auto go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...)
done
