#!/bin/sh
# Of both packages. deb: $1 is "configure"; rpm: $1 is 1 at the first installation, 2 or more at an upgrade.
set -e
if command -v systemd-sysusers >/dev/null 2>&1; then
    systemd-sysusers heeler-agent.conf
elif ! getent passwd heeler-agent >/dev/null; then
    groupadd --system heeler-agent
    useradd --system --gid heeler-agent --home-dir /var/lib/heeler-agent --shell /usr/sbin/nologin heeler-agent
fi
# Its own group reads the configuration, and nobody else.
for file in /etc/heeler/agent.toml /etc/heeler/agent.env; do
    [ ! -f "$file" ] || { chgrp heeler-agent "$file" && chmod 0640 "$file"; }
done
# The outbox: root's programs leave messages in it, the agent publishes and removes them. Files in it get its group.
mkdir -p /var/spool/heeler/outbox
chown root:heeler-agent /var/spool/heeler/outbox
chmod 2770 /var/spool/heeler/outbox
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    systemctl try-restart heeler-agent.service || : # only one that runs, after an upgrade
fi
# It is neither enabled nor started: it has no cluster yet.
