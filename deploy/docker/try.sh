#!/bin/bash
# Try docker-compose.yml for real: build, bring it up with three detectors, break three things, each time kill the
# leading detect container, crash enrich, and show that nothing is lost: every expected finding opened exactly once,
# every sample came through, and the sink received every point. Then take all down again. A developer's tool; needs a
# Docker engine, compose v2 and python3.
#
#   deploy/docker/try.sh [--no-build] [--keep]
#
#   --no-build  take the images that are there
#   --keep      leave everything up, to look around
#
# Without access to a registry give bases that the engine has, and the host's network for builds if need be:
#
#   HEELER_GO_IMAGE=... HEELER_BASE_IMAGE=... HEELER_PYTHON_IMAGE=... HEELER_BUILD_NETWORK=host deploy/docker/try.sh
#
# The last line is one JSON object; exit status 0 only if nothing was lost.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."

build=yes keep=no
for argument in "$@"; do
    case $argument in
        --no-build) build=no ;;
        --keep) keep=yes ;;
        *) echo "try.sh: unknown argument $argument" >&2; exit 2 ;;
    esac
done

export COMPOSE_PROJECT_NAME=${COMPOSE_PROJECT_NAME:-heeler-try-$$}
export HEELER_NATS_PORT=${HEELER_NATS_PORT-} HEELER_CONSOLE_PORT=${HEELER_CONSOLE_PORT-} FAULTS=none NODES=${NODES:-64} SEED=${SEED:-$RANDOM}
real='["n003", "n017", "n029", "n041"]'   # the nodes with a real agent
began=$(date +%s)

say() { printf '%4d s  %s\n' $(($(date +%s) - began)) "$*"; }
die() { say "$*" >&2; exit 1; }
judge() { docker compose exec -T drain python - "$@" <"$here/judge.py"; }
field() { python3 -c 'import json, sys; print(json.loads(sys.argv[1])[sys.argv[2]])' "$1" "$2"; }
with_kill() { python3 -c 'import json, sys
print(json.dumps(json.loads(sys.argv[1]) | {"killed_ns": int(sys.argv[2])}))' "$1" "$2"; }

docker version >/dev/null 2>&1 || { echo "try.sh: no Docker engine answers (DOCKER_HOST=${DOCKER_HOST:-})" >&2; exit 3; }
docker compose version >/dev/null 2>&1 || { echo "try.sh: docker has no compose plugin" >&2; exit 3; }

down() {
    status=$?
    trap - EXIT INT TERM
    if [ $status -ne 0 ]; then
        docker compose ps -a || true
        docker compose logs --tail 15 || true
    fi
    if [ $keep = yes ]; then
        say "left up: COMPOSE_PROJECT_NAME=$COMPOSE_PROJECT_NAME docker compose ps"
    else
        say "taking it down" >&2
        docker compose down -v --remove-orphans -t 10 >/dev/null 2>&1 || status=1
    fi
    exit $status
}

# The simulator's word on a new fault, once it has given it.
fault() {
    local before answer=
    before=$(labels | wc -l)
    docker compose exec -T fleet inject "$1"
    for _ in $(seq 100); do
        answer=$(labels | sed -n "$((before + 1))p")
        [ -n "$answer" ] && break
        sleep 0.1
    done
    case $answer in
        '' | *'"error"'*) die "fault refused: ${answer:-no answer}" ;;
    esac
    label=$answer
}
labels() { docker logs "$(docker compose ps -aq fleet)" 2>/dev/null | grep -E '^\{"(kind|error)":' || true; }

if [ $build = yes ]; then
    say "building the images"
    docker compose build --quiet nats agent-n003 enrich
fi
trap down EXIT
trap 'exit 130' INT TERM

say "bringing up $COMPOSE_PROJECT_NAME: $NODES nodes, SEED=$SEED, three detectors"
reply=$(docker compose up -d --no-build --scale detect=3 2>&1) || die "$reply"
reply=$(judge ready "$NODES") || die "not ready: $reply"
say "ready: $reply"

# broken JSON KEY: a fault, and the death of the detect container that leads for its KEY (node or job_id) before it
# can have found anything. With KEY "any" the one that leads for most is killed first, since an XID is found at once.
all=
broken() {
    local leaders holder killed
    leaders=$(judge leaders)
    if [ "$2" = any ]; then
        holder=$(python3 -c 'import collections, json, sys
print(collections.Counter(json.loads(sys.argv[1]).values()).most_common(1)[0][0])' "$leaders")
        docker kill "$holder" >/dev/null
        killed=$(date +%s%N)
        fault "$1"
    else
        fault "$1"
        sleep 1
        holder=$(field "$leaders" "$(field "$label" "$2")")
        docker kill "$holder" >/dev/null
        killed=$(date +%s%N)
    fi
    label=$(with_kill "$label" "$killed")
    all+=$label$'\n'
    say "$(field "$label" kind) on $(field "$label" node); killed the leading detect container, $holder"
    reply=$(judge answered "$label") || die "not answered: $reply"
    say "answered: $reply"
    docker start "$holder" >/dev/null
}

broken '{"kind": "thermal", "target": {"among": '"$real"', "job_nodes": 16}}' job_id
say "crashing enrich: its container comes back by itself"
docker compose exec -T enrich sh -c 'kill -9 -1' || true
broken '{"kind": "ib_flap", "target": {"among": '"$real"', "job_nodes": 16}, '\
'"params": {"count": 3, "down_s": 2.5, "every_s": 5.0}}' node
broken '{"kind": "gpu_lost", "target": {"among": '"$real"', "job_nodes": 16}}' any

first=$(sed -n 1p <<<"$all")
docker compose exec -T drain heeler why node "$(field "$first" node)" || true
docker compose ps --format 'table {{.Service}}\t{{.Name}}\t{{.Status}}'

say "stopping detectors and the fleet, letting enrich and otlp finish"
docker compose stop detect >/dev/null 2>&1   # first: they must not take the end for a silence of all agents
docker compose stop fleet agent-n003 agent-n017 agent-n029 agent-n041 >/dev/null 2>&1
judge verdict "$all" http://receiver:4318
