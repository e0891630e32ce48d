#!/bin/sh
# Set up a checkout: .venv with Heeler and its tools, and, with Go and a C compiler, bin/heeler-agent,
# bin/nats-server and the fake NVML library. Does only what is not done yet. Called by `make setup`.
#
#   PYTHON   interpreter to use            (python3, else python3.14 ... python3.11)
#   CI=true  a missing Go, compiler or module is a failure, never a fallback
set -eu
cd "$(dirname "$0")/../.."

say() { printf 'heeler: %s\n' "$*"; }
die() { printf 'heeler: %s\n' "$*" >&2; exit 1; }
sum() { cat "$@" 2>/dev/null | cksum | tr ' ' '-'; }
done_with() { [ "$(cat "build/stamp.$1" 2>/dev/null)" = "$2" ]; }
mark() { printf '%s' "$2" >"build/stamp.$1"; }

python_of() {           # the first interpreter that is new enough
    for p in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if command -v "$p" >/dev/null 2>&1 &&
            "$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$p"; return
        fi
    done
}

set_up_python() {
    want=$(sum pyproject.toml deploy/dev/constraints.txt deploy/dev/setup.sh)
    if done_with python "$want" && [ -x .venv/bin/python ]; then return; fi
    py=$(python_of)
    [ -n "$py" ] || die "Python 3.11 or newer is needed (found: $(python3 --version 2>&1 || echo none)); set PYTHON"
    if ! "$py" -c 'import ensurepip, venv' 2>/dev/null; then
        die "$py has no venv module: install it (Debian: apt install python3-venv)"
    fi
    say "setting up .venv with $("$py" --version)"
    [ -x .venv/bin/python ] || "$py" -m venv .venv
    .venv/bin/python -m pip install -q --disable-pip-version-check pip==26.3
    .venv/bin/python -m pip install -q --disable-pip-version-check -c deploy/dev/constraints.txt -e '.[all]' --group dev
    mark python "$want"
}

go_ready() {            # says why not in $lack
    lack=
    if ! command -v go >/dev/null 2>&1; then lack="no Go"; return 1; fi
    found=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null | sed 's/^go//')
    case $found in
        1.[0-9] | 1.[0-9].* | 1.1[0-9]* | 1.2[0-3] | 1.2[0-3].* | '') lack="Go ${found:-?} is older than 1.24"; return 1 ;;
    esac
    if ! command -v "${CC:-cc}" >/dev/null 2>&1; then lack="no C compiler"; return 1; fi
}

build_go() {
    mkdir -p bin
    export GOTOOLCHAIN=local GOFLAGS="${GOFLAGS:-} -buildvcs=false"
    want=$(sum agent-go/go.mod agent-go/go.sum)
    if ! done_with nats "$want" || [ ! -x bin/nats-server ] || [ -L bin/nats-server ]; then
        say "building bin/nats-server from its Go module (a minute or two the first time)"
        rm -f bin/nats-server
        (cd agent-go && go build -o ../bin/nats-server github.com/nats-io/nats-server/v2) || return 1
        mark nats "$want"
    fi
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
    (cd agent-go && go build -ldflags "-X main.version=$version" -o ../bin/heeler-agent ./cmd/heeler-agent) || return 1
    make -s -C tests/fakes/nvml
}

fall_back() {
    [ "${CI:-}" != true ] || die "$1; in CI that is a failure"
    say "$1: nodes are simulated only, nats-server comes from PyPI, Go tests are skipped"
    mkdir -p bin
    rm -f bin/heeler-agent
    [ -x bin/nats-server ] && [ ! -L bin/nats-server ] || ln -sf ../.venv/bin/nats-server bin/nats-server
}

mkdir -p build
set_up_python
if go_ready; then
    build_go || fall_back "the Go build failed"
else
    fall_back "$lack"
fi
