#!/usr/bin/env bash
# Runs tests against the Slurm of Debian 13 (24.11), in a root of its own beside this system:
#
#     deploy/dev/slurm24.sh                     # tests/slurm and what drains
#     deploy/dev/slurm24.sh tests/slurm -k rest
#
# Needs root, debootstrap, and a .venv whose Python does not come from /usr (pyenv, uv): that root has another one there.
# Tests of mounts, of cgroups and of certificates that have expired fail in it.
set -euo pipefail
repo=$(cd "$(dirname "$0")/../.." && pwd)
root=${HEELER_SLURM24_ROOT:-/var/tmp/heeler-slurm24}
python=$("$repo/.venv/bin/python" -c 'import sys; print(sys.base_prefix)')
case $python in /usr | /usr/local) echo "slurm24: the Python of .venv is in $python" >&2; exit 1 ;; esac
packages=(slurmctld slurmd slurmdbd slurmrestd slurm-client slurm-wlm-basic-plugins slurm-wlm-mysql-plugin
    slurm-wlm-jwt-plugin munge mariadb-server iproute2 procps kmod gcc libc6-dev make openssl
    libffi8 libsqlite3-0 libbz2-1.0 liblzma5 libreadline8)
[ $# -gt 0 ] || set -- tests/slurm tests/drain/test_slurmrest.py tests/drain/test_scontrol_slurm.py

if [ ! -x "$root/usr/sbin/slurmctld" ]; then
    debootstrap --variant=minbase --include=ca-certificates trixie "$root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # its daemons are started by the tests alone
    chmod +x "$root/usr/sbin/policy-rc.d"
    cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/"
    chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}"
fi
cp /etc/hosts /etc/resolv.conf "$root/etc/"
mkdir -p "$root$repo" "$root$python"
# The mounts are of this process and what it starts: they are gone with it.
exec unshare -m bash -euc '
    root=$1 repo=$2 python=$3
    shift 3
    mount -t proc proc "$root/proc"
    for folder in /sys /dev; do mount --rbind "$folder" "$root$folder"; done
    for folder in /tmp "$repo" "$python"; do mount --bind "$folder" "$root$folder"; done
    cd "$root$repo"
    exec chroot "$root" bash -c "cd \"$repo\" && exec .venv/bin/python -m pytest -q -p no:cacheprovider \"\$@\"" tests "$@"
' slurm24 "$root" "$repo" "$python" "$@"
