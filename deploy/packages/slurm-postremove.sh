#!/bin/sh
# Of both packages. deb: $1 is "remove", "purge", "upgrade" ...; rpm: $1 is 0 at removal, 1 at an upgrade.
# The user stays: files may still belong to it.
set -e
case $1 in
    purge) rm -rf /var/lib/heeler-slurm ;;
esac
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
fi
