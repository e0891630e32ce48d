#!/bin/sh
# Of both packages. deb: $1 is "remove" or "upgrade"; rpm: $1 is 0 at removal, 1 at an upgrade.
set -e
case $1 in
    remove | deconfigure | 0)
        if [ -d /run/systemd/system ]; then
            systemctl --no-reload disable --now heeler-slurm.service || :
        fi ;;
esac
