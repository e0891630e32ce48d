#!/bin/sh
# Lay out one of the node programs with its own Python in build/packages/ARCH/NAME/tree, as it lies in /usr/lib/NAME.
#
#   app.sh ARCH NAME     NAME: heeler-health or heeler-slurm
#
# Inside: Python (build.sh), the wheels of wheels-*.txt with the sums there, Heeler itself, all compiled ahead.
set -eu
cd "$(dirname "$0")/../../.."
here=deploy/packages/python
arch=$1 name=$2
kind=${name#heeler-}
case $arch in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; esac
native=$(case $(uname -m) in x86_64) echo amd64 ;; *) echo arm64 ;; esac)
tree=build/packages/$arch/$name/tree
python=build/python/$native/tree/bin/python3.13
lib=$tree/lib/python3.13
site=$lib/site-packages

rm -rf "$(dirname "$tree")"
mkdir -p "$(dirname "$tree")"
cp -R "build/python/$arch/tree" "$tree"
pip() { .venv/bin/python -m pip "$@" -q --disable-pip-version-check --no-deps --no-compile --root-user-action ignore; }
platforms=$(printf -- '--platform manylinux_2_%s_%s ' 5 $machine 12 $machine 17 $machine 28 $machine)
# shellcheck disable=SC2086 # words
pip install --target "$site" --require-hashes --only-binary :all: --implementation cp --python-version 3.13 \
    --abi cp313 --abi abi3 --abi none $platforms --platform manylinux2014_$machine \
    -r $here/wheels-both.txt -r "$here/wheels-$kind.txt"
# Plain Python, published as source: any pip may build it.
rm -rf "$site/bin"
pip install --target "$site" --require-hashes --no-binary :all: -r $here/sources-both.txt
rm -rf "$site/bin"  # their commands
pip install --target "$site" .
rm -rf "$site/bin"
rm -f "$site/example.py"  # of nvidia-ml-py
# What no program of the node imports; their libraries are not inside either. Of detect only its table of XIDs.
(cd "$site/heeler" && rm -rf sim drain otlp console && find detect -type f ! -name xid.toml -delete)
[ "$kind" = slurm ] || rm -rf "$site/heeler/cli" "$site/heeler/doctor"
# Sources in C and Cython, and the symbols of compiled modules: 19 MB that nothing reads.
find "$site" -type f \( -name '*.py[xi]' -o -name '*.pxd' -o -name '*.[ch]' \) ! -path "$site/heeler/*" -delete
strip=strip
[ "$arch" = "$native" ] || strip=$machine-linux-gnu-strip
! command -v "$strip" >/dev/null 2>&1 || find "$site" -name '*.so*' -exec "$strip" --strip-unneeded {} +
# pip writes down where things came from, a folder of the builder's, and sums of what is not here any more.
find "$site" \( -name direct_url.json -o -name RECORD \) -delete
find "$site" -name __pycache__ -prune -exec rm -rf {} +
# Compiled ahead, checked never: the files belong to the package.
"$python" -I -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$tree" -p "/usr/lib/$name" "$lib"
program() {             # a command, that needs no Python but the one beside it: NAME, module with a main()
    printf '#!/usr/lib/%s/bin/python3.13 -I\nfrom %s import main\n\nmain()\n' "$name" "$2" >"$tree/../$1"
    chmod 755 "$tree/../$1"
}
case $kind in
    health) program heeler-health heeler.health.cli ;;
    slurm) program heeler-slurm heeler.slurm.agent; program heeler heeler.cli.main ;;
esac
find "$tree" -exec touch -h -d "@${SOURCE_DATE_EPOCH:-0}" {} +
