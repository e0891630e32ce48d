"""Write the units of the processors into deploy/systemd: one template for each, alike but for what each is allowed.

    python3 deploy/dev/units.py

A test fails where a file there is not what this makes.
"""

from dataclasses import dataclass, field
from pathlib import Path

# ruff: noqa: INP001 - a script, no package

FOLDER = Path(__file__).resolve().parents[1] / "systemd"


@dataclass(frozen=True, slots=True)
class Unit:
    """What tells a processor's unit from the others."""

    about: str
    port: str  # of /metrics and /healthz, but for its last digit, which is the instance
    memory: str
    user: str = "heeler"
    after: str = ""
    own: tuple[str, ...] = field(default_factory=tuple)  # lines of [Service]
    by_default: bool = True  # started with heeler.target as it comes


UNITS = {
    "enrich": Unit("enrich: the job of each GPU onto samples and events", "2946", "1G"),
    "detect": Unit("detect: trouble in jobs, nodes and agents", "2947", "4G"),
    "drain": Unit(
        "drain: broken nodes out of service",
        "2948",
        "1G",
        user="heeler-drain",
        after="munge.service slurmctld.service",
        own=(
            "",
            "# In Slurm this user has AdminLevel=Operator, so nothing else runs as it. scontrol needs munge's socket",
            "# alone. A program for a reset ([drain.hooks]) is shut in too: give it more in a drop-in.",
        ),
    ),
    "otlp": Unit(
        "otlp: metrics and findings to OTLP, files and plug-ins",
        "2949",
        "2G",
        own=(
            "",
            '# For sinks of kind "file": path = "/var/lib/heeler-otlp/..."',
            "StateDirectory=heeler-otlp",
            "StateDirectoryMode=0750",
        ),
    ),
    "otlp-in": Unit(
        "otlp-in: who has each GPU, onto the metrics of other exporters",
        "2950",
        "1G",
        own=(
            "",
            '# For sinks of kind "file": path = "/var/lib/heeler-otlp-in/..."',
            "StateDirectory=heeler-otlp-in",
            "StateDirectoryMode=0750",
        ),
        by_default=False,  # listens where collectors do, and needs somebody who sends
    ),
    "summary": Unit("summary: what the GPUs of each run of a job did", "2951", "4G"),
    "lemon": Unit("lemon: nodes that are in trouble again and again", "2952", "2G"),
    "console": Unit("console: the web page", "2953", "4G"),
}

UNIT = """\
# A processor of Heeler; heeler-{name}@1 is one, @2 another beside it (a digit, which ends its port). Settings of your
# own belong into a drop-in: systemctl edit heeler-{name}@1. Written by deploy/dev/units.py.
[Unit]
Description=Heeler {about} (%i)
Documentation=https://heeler.dev
Wants=network-online.target
After=network-online.target{after}
PartOf=heeler.target
# It comes back for ever.
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
# Its own metrics and health: /metrics and /healthz at this port, whose last digit is the instance.
Environment=HEELER_LISTEN=127.0.0.1:{port}%i
# Where the bus is, for all processors of this machine; what is for this one alone.
EnvironmentFile=-/etc/heeler/heeler.env
EnvironmentFile=-/etc/heeler/{name}.env
ExecStart=/usr/bin/heeler run {name} --config /etc/heeler/{name}.toml --listen ${{HEELER_LISTEN}}
Restart=always
# Longer and longer, up to five minutes, with systemd 254 and newer; older ones say that they don't know the two.
RestartSec=5s
RestartSteps=6
RestartMaxDelaySec=5min
# Fed by the loop that does all the work. A bus that is away does not count: no restart would mend that.
WatchdogSec=3min
TimeoutStopSec=30s
KillMode=mixed

User={user}
Group={user}
UMask=0027
# A key that only root can read (systemd 247 and newer); then in {name}.env:
#   HEELER_NATS_CERT=/run/credentials/heeler-{name}@1.service/cert     and HEELER_NATS_KEY=.../key
#LoadCredential=cert:/etc/heeler/tls/heeler-{name}.pem
#LoadCredential=key:/etc/heeler/tls/heeler-{name}.key
{own}
MemoryMax={memory}
TasksMax=256
CPUWeight=50
# numpy would start a thread on each core, for work that takes one.
Environment=OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

CapabilityBoundingSet=
AmbientCapabilities=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
ProtectProc=invisible
ProcSubset={proc}
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
KeyringMode=private
RemoveIPC=yes
# AF_NETLINK: the C library asks which addresses the machine has when it looks a name up.
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
MemoryDenyWriteExecute=yes

[Install]
WantedBy=heeler.target
DefaultInstance=1
"""

TARGET = """\
# All processors of this machine. Written by deploy/dev/units.py.
#
#   systemctl enable --now heeler.target          one of each of those named below; the disabled ones stay away
#   systemctl enable --now heeler-detect@2        one more beside it
#   systemctl disable --now heeler-lemon@1        one that is not wanted
#   systemctl stop heeler.target                  all of them
[Unit]
Description=Heeler processors
Documentation=https://heeler.dev

[Install]
WantedBy=multi-user.target
Also={members}
"""


def unit_of(name: str, unit: Unit) -> str:
    """Return the template unit of a processor."""
    return UNIT.format(
        name=name,
        about=unit.about,
        port=unit.port,
        memory=unit.memory,
        user=unit.user,
        after=f" {unit.after}" if unit.after else "",
        own="".join(f"{line}\n" for line in unit.own),
        proc="all" if name == "drain" else "pid",
    )


def made() -> dict[str, str]:
    """Return all files by name."""
    files = {f"heeler-{name}@.service": unit_of(name, unit) for name, unit in UNITS.items()}
    members = " ".join(f"heeler-{name}@1.service" for name, unit in UNITS.items() if unit.by_default)
    return files | {"heeler.target": TARGET.format(members=members)}


if __name__ == "__main__":
    for name, text in made().items():
        (FOLDER / name).write_text(text)
