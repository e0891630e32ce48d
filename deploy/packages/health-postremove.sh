#!/bin/sh
# Of both packages. deb: $1 is "remove", "purge", "upgrade" ...; rpm: $1 is 0 at removal, 1 at an upgrade.
set -e
case $1 in
    purge | 0)
        rm -rf /run/heeler
        # Where the agent stays, the folder and what waits in it are the agent's.
        [ -e /usr/bin/heeler-agent ] || rm -rf /var/spool/heeler/outbox
        rmdir /var/spool/heeler 2>/dev/null || : ;;
esac
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
fi
