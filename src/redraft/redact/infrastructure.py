"""Infrastructure: addresses, hosts, cloud resources and user folders of a machine or network of one's own."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from redraft.redact.engine import has_any, spans
from redraft.redact.kinds import Found, Kind
from redraft.redact.values import is_placeholder
from redraft.redact.words import word_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.redact.view import View

_V4 = r"\b\d{1,3}(?:\.\d{1,3}){3}\b"
_V6 = r"[0-9A-Fa-f]{0,4}(?::{1,2}[0-9A-Fa-f]{1,4}){2,7}\b"
_MAC = r"\b(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\b"
_PUBLIC_BEFORE = re.compile(
    r"(?i)(?:\b(?:ip|ips|ipv4|address|addr|host|hosts|hostname|server|servers|node|nodes|from|to|at|on"
    r"|peer|client|gateway|dns|connect|connected"
    r"|connecting|ping|ssh|nameserver|proxy|endpoint|upstream|remote"
    r"|bind)\b[\"']?[ \t]{0,3}[:=]?[ \t]{0,3}(?:is[ \t])?[\"'(\[]?|//|@)$"
)
_VERSION_BEFORE = re.compile(
    r"(?i)(?:\bv|version|release|update[ds]?(?: to)?|upgraded?(?: to)?|==|>=|<=|~=|\^|~|-|\.)[ \t\"':=]{0,3}$"
)
_COLONS = 7
_NEAR = 24
_OPEN_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.2.0/24",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "2001:db8::/32",
        "127.0.0.0/8",
        "0.0.0.0/8",
        "::1/128",
        "::/128",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_OPEN_ADDRESSES = frozenset({"8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "9.9.9.9"})
_L = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,62})"
_HOST = (
    # endings that only names of one's own network have
    rf"\b(?:{_L}\.){{1,8}}(?i:svc\.cluster\.local|cluster\.local|svc|localdomain|intranet|corp|lan|intra"
    rf"|internal|local|private|home\.arpa|consul|ts\.net)\b"
    rf"|\b(?:{_L}\.){{1,8}}(?i:rds|elb|compute|compute-1|cache|es|ec2|redshift|eks|execute-api|docdb"
    rf"|mq)\.(?:{_L}\.){{0,3}}amazonaws\.com\b"
    rf"|\b(?:{_L}\.){{1,8}}(?i:amazonaws\.com|database\.windows\.net|blob\.core\.windows\.net"
    rf"|vault\.azure\.net|azurewebsites\.net|azmk8s\.io|servicebus\.windows\.net"
    rf"|redis\.cache\.windows\.net|documents\.azure\.com"
    rf"|run\.app|cloudfunctions\.net|snowflakecomputing\.com|mongodb\.net|ondigitalocean\.com|onmicrosoft\.com|ngrok\.io"
    rf"|ngrok-free\.app)\b"
    rf"|\bip-\d{{1,3}}-\d{{1,3}}-\d{{1,3}}-\d{{1,3}}\b(?:\.{_L})*"
    # services that a company runs for itself, and its environments
    r"|\b(?i:(?:jenkins|gitlab|jira|confluence|grafana|kibana|vault|bastion|ldap|vpn|nexus|artifactory"
    r"|sonar|sonarqube|prometheus|argocd|rancher|airflow|internal|intra|staging|stage|stg|prod|preprod|uat|qa"
    r"|db|redis|postgres|pg|mysql|mongo|kafka|rabbitmq|elastic|es|k8s|node|master|worker|ns|mx|smtp|proxy"
    r"|jump|nas|admin|backoffice|splunk|sentry|registry|harbor|minio)(?:[-_]?[a-z0-9]{1,20}){0,4})"
    rf"\.(?:{_L}\.){{1,5}}(?i:com|net|org|io|co|cloud|app|ai|dev|tech|de|fr|uk|eu|us|ch|nl|at|it|es|se|no"
    rf"|in|jp|cn|au|ca|br|systems|services|group|bank)\b"
)
_OFTEN_CODE = re.compile(r"(?i)\.(?:local|private|internal|svc|consul|intra)$")
_SINGLE = (
    r"(?i:\b(?:https?|wss?|tcp|redis|rediss|postgres|postgresql|mysql|mongodb|amqp|amqps|kafka|grpc"
    r"|ldaps?|sftp|ftp|nfs|smb)://(?:[^\s/@\"']{1,64}@)?)([A-Za-z][A-Za-z0-9_-]{1,62})(?::\d{2,5}\b"
    r"|[/\"'\s]|\z)"
    r"|(?i:\b(?:ssh|scp|sftp|rsync|ping|telnet|nslookup|dig"
    r"|traceroute)[ \t]{1,3}(?:-[A-Za-z0-9]+[ \t]{1,3}(?:\d+"
    r"[ \t]{1,3})?){0,4}(?:[\w.-]{1,32}@)?)([A-Za-z][A-Za-z0-9-]{1,62}\d[A-Za-z0-9.-]{0,62}"
    r"|[A-Za-z][A-Za-z0-9-]{0,40}-[A-Za-z0-9.-]{1,62})"
    r"|(?i:\b(?:host|hostname|host_?name|server|server_?name|node|node_?name|instance|machine|database_host"
    r"|db_?host|redis_?host|pod|broker|bootstrap[._]servers?)"
    r"\b[\"'`]?[ \t]{0,3}(?:[:=]|\bis\b)[ \t]{0,3}[\"'`]?)"
    r"([A-Za-z][A-Za-z0-9]{0,30}(?:-[A-Za-z0-9]{1,30}){0,6}-?\d{1,4}(?:[.-][A-Za-z0-9-]{1,40}){0,5})\b"
    r"|(?i:\bconnect(?:ed|ing)? to (?:the )?(?:host|server) [\"'`]?)"
    r"([A-Za-z][A-Za-z0-9-]{0,40}\d[A-Za-z0-9.-]{0,40})\b"
    r"|(?i:\b(?:host|server|node|instance|machine|pod|broker)[ \t]{1,2}[\"'`]?)"
    r"([A-Za-z][A-Za-z0-9]{0,30}(?:-[A-Za-z0-9]{1,30}){0,6}-[A-Za-z0-9]{0,20}\d{1,4})\b"
)
_RESOURCE = (
    r"\barn:aws[a-z-]{0,8}:[a-z0-9-]{1,30}:[a-z0-9-]{0,20}:(?:\d{12})?:[^\s\"'`,;)<>\]]{1,256}"
    r"|\b(?:s3a?|gs|abfss?|wasbs?)://[^\s\"'`,;)<>\]]{3,256}"
    r"|/subscriptions/[0-9a-fA-F-]{36}[^\s\"'`,;)<>\]]{0,256}"
    r"|\bprojects/[a-z][a-z0-9-]{4,30}/(?:locations|secrets|zones|instances|topics"
    r"|serviceAccounts)/[^\s\"'`,;)<>\]]{1,128}"
    r"|\b(?:i|vpc|subnet|sg|ami|eni|vol|snap|rtb|igw|nat|eipalloc)-(?:[0-9a-f]{17}|[0-9a-f]{8})\b"
    r"|\\\\[A-Za-z][A-Za-z0-9._-]{1,62}\\[A-Za-z0-9$._ -]{1,64}"
)
_FOLDER = (
    r"(?:/home/|/Users/|\b[A-Za-z]:[\\/]{1,2}(?i:users|documents and settings)[\\/]{1,2}"
    r"|\\Users\\)([^\s/\\\"'`:;,<>|)\]]{1,64})"
)
# Who somebody is to Kerberos: a name in a realm, which is written in capitals.
_PRINCIPAL = (
    r"\b([a-z][a-z0-9._-]{1,40}(?:/[a-z0-9.-]{1,60})?@[A-Z][A-Z0-9-]{2,30}(?:\.[A-Z][A-Z0-9-]{1,30}){0,4})\b"
)
_ANY = (_PRINCIPAL, _V4, _V6, _MAC, _HOST, _SINGLE, _RESOURCE, _FOLDER)
_ANYBODY = word_set(
    "user username me you your-name name shared public default admin ubuntu runner vscode node app "
    "appuser root guest all users administrator user1 student sandbox ec2-user vagrant jovyan "
    "circleci git"
)
_LOCAL = word_set(
    "localhost host hostname server example test db database redis postgres mysql mongo kafka www api web"
)


def infrastructure(view: View) -> Iterator[Found]:
    """Yield where addresses, hosts, cloud resources and names of user folders stand."""
    if not has_any(_ANY, view.data):
        return
    for span in spans(_PRINCIPAL, view.data):
        yield Found(*span, Kind.USER)
    yield from _addresses(view)
    yield from _hosts(view)
    for span in spans(_RESOURCE, view.data):
        yield Found(*span, Kind.RESOURCE)
    for start, end in spans(_FOLDER, view.data):
        name = view.text[start:end].rstrip(".")
        if name.lower() not in _ANYBODY and not is_placeholder(name) and name.strip(".*${}"):
            yield Found(start, start + len(name), Kind.USER)


def _addresses(view: View) -> Iterator[Found]:
    text = view.text
    for start, end in spans(_V4, view.data):
        if _is_own(text[start:end], text[max(0, start - _NEAR) : start], text[end : end + 2]):
            yield Found(start, end, Kind.ADDRESS)
    for start, end in spans(_V6, view.data):
        value = text[start:end]
        if (any(char.isdigit() for char in value) or value[:2].lower() in ("fe", "fd", "fc")) and value.count(
            ":"
        ) > 1:
            own = _is_own(value, "//", "") and text[start - 1 : start] != ":"
            if own and (value.count(":") == _COLONS or "::" in value):
                yield Found(start, end, Kind.ADDRESS)
    for start, end in spans(_MAC, view.data):
        if len(set(text[start:end].lower())) > 3:  # noqa: PLR2004 (ff:ff and 00:00 are nobody's)
            yield Found(start, end, Kind.ADDRESS)


def _is_own(value: str, before: str, behind: str) -> bool:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    if value in _OPEN_ADDRESSES or any(
        address in network for network in _OPEN_NETWORKS if network.version == address.version
    ):
        return False
    if _VERSION_BEFORE.search(before):
        return False
    # Four small numbers are a version as often as an address.
    return (
        not address.is_global
        or bool(_PUBLIC_BEFORE.search(before))
        or re.match(r":\d{2}|/\d", behind + "0") is not None
    )


def _hosts(view: View) -> Iterator[Found]:
    text = view.text
    for start, end in spans(_HOST, view.data):
        name = text[start:end]
        if _OFTEN_CODE.search(name) and not _is_host(
            name, text[max(0, start - 12) : start], text[end : end + 2]
        ):
            continue
        if not re.search(r"(?i)(?:^|\.)example\.", name) and text[end : end + 1] != "(":
            yield Found(start, end, Kind.HOST)
    for start, end in spans(_SINGLE, view.data):
        name = text[start:end]
        if (
            name.lower() not in _LOCAL
            and not re.search(r"(?i)example|^localhost", name)
            and not is_placeholder(name)
        ):
            yield Found(start, end, Kind.HOST)


def _is_host(name: str, before: str, behind: str) -> bool:
    """Say whether a name with an ending that attributes have, too, is a host's."""
    if before.endswith(("//", "@")) or re.match(r":\d|/", behind):
        return True
    first = name.split(".", maxsplit=1)[0]
    return "-" in first or (any(char.isdigit() for char in first) and not behind.startswith((" =", "=")))
