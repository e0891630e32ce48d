#!/bin/sh
# The Go encoders of schemas/go, from its types.
set -eu
cd "$(dirname "$0")/../.."
[ -x bin/heeler-agent ] || { echo "heeler: Go encoders not generated: no Go"; exit 0; }
cd schemas/go && go generate ./...
