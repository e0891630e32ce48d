"""nats-server's configuration of a site: one file for each server, and one of users that those of the hub share."""

import json
from collections.abc import Iterable, Iterator

from heeler.access.rights import Rights, total
from heeler.access.roles import agent_rights, durables_of, health_rights, operator_rights, rack_rights, rights_of
from heeler.access.site import Cluster, Rack, Server, Site
from heeler.slurm.hostlist import expand

HEAD = "# Made by `heeler bus config`: change the site's file and make it anew, then `nats-server --signal reload`.\n"


def files(site: Site) -> dict[str, str]:
    """Return the text of each file by its name."""
    made = {f"{server.name}.conf": hub(site, server) for server in site.servers}
    made["users.conf"] = hub_users(site)
    for cluster in site.clusters:
        for rack in cluster.racks:
            made[f"rack-{rack.name}.conf"] = leaf(site, rack)
            made[f"rack-{rack.name}-users.conf"] = leaf_users(site, cluster, rack)
    return {name: HEAD + text for name, text in made.items()}


def hub(site: Site, server: Server) -> str:
    """Return a server of the hub."""
    text = f"""server_name: {_text(server.name)}
listen: {_text(f"0.0.0.0:{server.port}")}
max_connections: {site.max_connections}
# A fleet that comes back after an outage does so in a minute.
write_deadline: "10s"

# Who a client is stands in its certificate: a name of it (DNS) is the user.
tls {{
{_tls(site, server.name)}
  verify_and_map: true
}}

jetstream {{
  store_dir: {_text(site.files.store)}
  max_file_store: {site.max_file_store}
  max_memory_store: {site.max_memory_store}
  # The agents' spools keep what was acknowledged for 3 s, longer than what a power loss can take here.
  sync_interval: "1s"
}}

include "users.conf"
"""
    if any(cluster.racks for cluster in site.clusters):
        text += f"""
# Leaf servers of racks: users like all others, by their certificates. What they ask of streams and buckets is for us.
default_js_domain: {{ {_text(site.account)}: "" }}
leafnodes {{
  listen: {_text(f"0.0.0.0:{server.leaf_port}")}
  tls {{
{_tls(site, server.name, indent=4)}
    verify_and_map: true
  }}
}}
"""
    if len(site.servers) > 1:
        routes = "\n".join(f"    {_text(f'tls://{one.host}:{one.cluster_port}')}" for one in site.servers)
        text += f"""
cluster {{
  name: {_text(site.name)}
  listen: {_text(f"0.0.0.0:{server.cluster_port}")}
  tls {{
{_tls(site, server.name, indent=4)}
    # Nodes have certificates of the same authority: only those with a name of the routes are servers.
    verify_cert_and_check_known_urls: true
  }}
  routes: [
{routes}
  ]
}}
"""
    return text


def hub_users(site: Site) -> str:
    """Return the accounts and users of the hub: roles, nodes in no rack, and the racks' leaf servers."""
    durables = durables_of(site.sinks)
    users: list[tuple[str, Rights | None]] = []
    every = [cluster.name for cluster in site.clusters]
    for name, (role, cluster) in site.roles().items():
        users.append((name, rights_of(role, every if cluster is None else [cluster.name], durables)))
    users += [(name, operator_rights(name, every, durables)) for name in site.operators]
    for cluster in site.clusters:
        users += _nodes(site, cluster, expand(cluster.nodes))
        users += [(f"rack-{rack.name}", rack_rights(cluster.name, expand(rack.nodes))) for rack in cluster.racks]
    system = f"""# The server's own events and requests: for nats-server's tools, no one else.
SYS {{ users: [ {{ user: {_text(site.user("heeler-sys"))} }} ] }}
"""
    return _accounts(site, users, "jetstream: enabled\n", system) + "system_account: SYS\n"


def leaf(site: Site, rack: Rack) -> str:
    """Return the leaf server of a rack: no streams of its own."""
    name = f"rack-{rack.name}"
    urls = "\n".join(f"        {_text(f'tls://{server.host}:{server.leaf_port}')}" for server in site.servers)
    return f"""server_name: {_text(name)}
listen: {_text(f"0.0.0.0:{rack.port}")}

tls {{
{_tls(site, name)}
  verify_and_map: true
}}

include "{name}-users.conf"

# Streams and buckets are the hub's.
default_js_domain: {{ {_text(site.account)}: "" }}
leafnodes {{
  remotes: [
    {{
      account: {_text(site.account)}
      urls: [
{urls}
      ]
      tls {{
{_tls(site, name, indent=8)}
      }}
    }}
  ]
}}
"""


def leaf_users(site: Site, cluster: Cluster, rack: Rack) -> str:
    """Return the users of a rack's leaf server: its nodes."""
    return _accounts(site, _nodes(site, cluster, expand(rack.nodes)))


def _nodes(site: Site, cluster: Cluster, nodes: Iterable[str]) -> Iterator[tuple[str, Rights | None]]:
    for node in nodes:
        agent, health = agent_rights(cluster.name, node), health_rights(cluster.name, node)
        yield node, total((agent, health)) if site.health == "agent" else agent
        if site.health == "own":
            yield f"{node}-health", health


def _accounts(site: Site, users: Iterable[tuple[str, Rights | None]], more: str = "", others: str = "") -> str:
    lines = "\n".join(_user(site.user(name), rights) for name, rights in users)
    return f"accounts {{\n{site.account} {{\n{more}users: [\n{lines}\n]\n}}\n{others}}}\n"


def _user(name: str, rights: Rights | None) -> str:
    if rights is None:
        return f"{{ user: {_text(name)} }}"
    deny = f", deny: {_list(rights.deny_publish)}" if rights.deny_publish else ""
    answers = ', allow_responses: { max: 1, expires: "10m" }' if rights.answers else ""
    return (
        f"{{ user: {_text(name)}, permissions: {{\n"
        f"  publish: {{ allow: {_list(rights.publish)}{deny} }},\n"
        f"  subscribe: {{ allow: {_list(rights.subscribe)} }}{answers} }} }}"
    )


def _tls(site: Site, name: str, indent: int = 2) -> str:
    files = site.files
    pairs = (("cert_file", files.cert), ("key_file", files.key), ("ca_file", files.ca))
    return "\n".join(f"{' ' * indent}{key}: {_text(path.replace('{name}', name))}" for key, path in pairs)


def _list(subjects: Iterable[str]) -> str:
    return "[" + ", ".join(map(_text, subjects)) + "]"


def _text(value: str) -> str:
    return json.dumps(value)
