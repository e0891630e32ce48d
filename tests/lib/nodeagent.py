"""The real node agent on a node that is a folder: fake GPUs, a kernel log that is a file, short intervals."""

from pathlib import Path

AGENT = Path(__file__).resolve().parents[2] / "bin/heeler-agent"


def agent_command(folder: Path, *, cluster: str, node: str, url: str, library: Path) -> list[str]:
    """Write the kernel log's first line and the configuration; return the command that runs the agent."""
    (folder / "kmsg").write_text("6,1,1000,-;Linux version 6.1.0\n")
    config = folder / "agent.toml"
    config.write_text(
        f'cluster = "{cluster}"\nnode = "{node}"\nboot_id = "boot-of-{node}"\nstate_dir = "{folder}/state"\n'
        f'window = "1s"\ninterval = "250ms"\nstatus_interval = "1s"\n'
        f'[nats]\nservers = ["{url}"]\nconnect_jitter = "0s"\n'
        f'[kmsg]\npath = "{folder}/kmsg"\n'
        f'[outbox]\npath = "{folder}/outbox"\n'
        f'[nvml]\nlibrary = "{library}"\n[collectors]\nib = false\n'
    )
    return [str(AGENT), "run", "-config", str(config)]
