#!/bin/sh
# Build the agent and its .deb and .rpm for amd64 and arm64 into dist/, and those of heeler-health and heeler-slurm, which
# carry a Python of their own (python/build.sh; four minutes the first time). Called by `make packages`.
#
#   ARCHES    the agent's                (amd64 arm64; one without its cross compiler is left out in one line)
#   PYTHON_ARCHES  heeler-health's and heeler-slurm's  (this machine's; where Python can't be built: left out in one line)
#   VERSION   version of the packages    (pyproject.toml's; with the commit where that is not tagged)
#   CI=true   a missing cross compiler is a failure
set -eu
cd "$(dirname "$0")/../.."
export GOTOOLCHAIN=local CGO_ENABLED=1 GOFLAGS="-buildvcs=false"
# NVML's header marks old calls as deprecated; the bindings name them all.
export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g -Wno-deprecated-declarations}"

commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
release=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
if [ -z "${VERSION:-}" ]; then
    VERSION=$release
    if [ "$(git describe --exact-match --tags 2>/dev/null || :)" != "v$release" ]; then
        # "~" sorts before the release itself, in both kinds of package.
        VERSION="$release~dev.$(git rev-list --count HEAD 2>/dev/null || echo 0).g$commit"
    fi
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH PACKAGE_VERSION="$VERSION"

compiler() {            # the C compiler for an architecture
    case $1 in
        "$(go env GOHOSTARCH)") echo "${CC:-cc}" ;;
        arm64) echo aarch64-linux-gnu-gcc ;;
        amd64) echo x86_64-linux-gnu-gcc ;;
        *) echo "no-compiler-for-$1" ;;
    esac
}

# The newest C library that the program asks for: packages must not promise more than it.
libc_of() { strings -a "$1" | sed -n 's/^GLIBC_\([0-9.]*\)$/\1/p' | sort -V | tail -n 1; }

package() {
    arch=$1
    cc=$(compiler "$arch")
    if ! command -v "$cc" >/dev/null 2>&1; then
        echo "heeler: no package for $arch: no $cc (Debian: apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross)"
        [ "${CI:-}" != true ] || exit 1
        return 0
    fi
    export ARCH="$arch" BUILD="build/packages/$arch"
    mkdir -p "$BUILD"
    (cd agent-go && CC=$cc GOARCH=$arch go build -trimpath \
        -ldflags "-s -w -X main.version=$VERSION -X main.commit=$commit" -o "../$BUILD/heeler-agent" ./cmd/heeler-agent)
    gzip -9nc CHANGELOG.md >"$BUILD/changelog.gz"
    gzip -9nc deploy/packages/heeler-agent.8 >"$BUILD/heeler-agent.8.gz"
    libc=$(libc_of "$BUILD/heeler-agent")
    for kind in deb rpm; do
        case $kind in
            deb) DEPENDS_LIBC="libc6 (>= $libc)" UNIT_DIR=/lib/systemd/system ;;
            rpm) DEPENDS_LIBC="glibc >= $libc" UNIT_DIR=/usr/lib/systemd/system ;;
        esac
        export DEPENDS_LIBC UNIT_DIR
        "$nfpm" package --config deploy/packages/nfpm.yaml --packager "$kind" --target dist/ >/dev/null
    done
}

# heeler-health and heeler-slurm, with the oldest C library that their Python and wheels are for.
python_packages() {
    arch=$1
    deploy/packages/python/build.sh "$arch" || {
        [ $? -eq 3 ] && [ "${CI:-}" != true ] || exit 1
        echo "heeler: no heeler-health and heeler-slurm for $arch"
        return 0
    }
    export ARCH="$arch" BUILD="build/packages/$arch"
    mkdir -p "$BUILD"
    gzip -9nc CHANGELOG.md >"$BUILD/changelog.gz"
    for name in heeler-health heeler-slurm; do
        deploy/packages/python/app.sh "$arch" "$name"
        for kind in deb rpm; do
            case $kind in
                deb) DEPENDS_LIBC="libc6 (>= 2.28)" UNIT_DIR=/lib/systemd/system ;;
                rpm) DEPENDS_LIBC="glibc >= 2.28" UNIT_DIR=/usr/lib/systemd/system ;;
            esac
            export DEPENDS_LIBC UNIT_DIR
            "$nfpm" package --config "deploy/packages/${name#heeler-}.yaml" --packager "$kind" --target dist/ >/dev/null
        done
    done
}

nfpm=.venv/bin/nfpm
[ -x $nfpm ] || nfpm=$(command -v nfpm || :)
[ -n "$nfpm" ] || { echo "heeler: no nfpm: run make setup" >&2; exit 1; }
mkdir -p dist
rm -f dist/heeler-*.deb dist/heeler-*.rpm
for arch in ${ARCHES:-amd64 arm64}; do
    package "$arch"
done
for arch in ${PYTHON_ARCHES:-$(go env GOHOSTARCH)}; do
    python_packages "$arch"
done
ls dist/heeler-*
