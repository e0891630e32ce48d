#!/bin/sh
# Of both packages. deb: $1 is "configure"; rpm: $1 is 1 at the first installation, 2 or more at an upgrade.
set -e
# The outbox is the agent's to empty; where that is installed later its package hands the folder over.
mkdir -p /var/spool/heeler/outbox /run/heeler
if getent group heeler-agent >/dev/null; then
    chown root:heeler-agent /var/spool/heeler/outbox
    chmod 2770 /var/spool/heeler/outbox
else
    chmod 0700 /var/spool/heeler/outbox
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    systemctl try-restart heeler-health.service || : # only one that runs, after an upgrade
fi
# It is neither enabled nor started, and no script stands in slurm.conf: that is the site's to decide.
