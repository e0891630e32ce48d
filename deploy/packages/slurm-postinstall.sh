#!/bin/sh
# Of both packages. deb: $1 is "configure"; rpm: $1 is 1 at the first installation, 2 or more at an upgrade.
set -e
if command -v systemd-sysusers >/dev/null 2>&1; then
    systemd-sysusers heeler-slurm.conf
elif ! getent passwd heeler-slurm >/dev/null; then
    groupadd --system heeler-slurm
    useradd --system --gid heeler-slurm --home-dir /var/lib/heeler-slurm --shell /usr/sbin/nologin heeler-slurm
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    systemctl try-restart heeler-slurm.service || : # only one that runs, after an upgrade
fi
# It is neither enabled nor started: it has no cluster and no bus yet.
