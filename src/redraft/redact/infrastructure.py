"""Infrastructure: the addresses, hosts, cloud resources and user folders of a private machine or network."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from redraft.redact.engine import has_any, matches, spans
from redraft.redact.kinds import Finding, Kind
from redraft.redact.values import is_identifier, is_placeholder, word_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.redact.canonical import View


def find_infrastructure(view: View) -> Iterator[Finding]:
    """Yield addresses, hosts, cloud resources and the user names in folders, prompts and commands."""
    if not has_any(_ANY, view.data):
        return
    for match in matches(_PROMPT, view.data):
        for group, kind, generic_names in ((1, Kind.USER, _GENERIC_USERS), (2, Kind.HOST, _GENERIC_HOSTS)):
            start, end = match.span(group)
            if view.text[start:end].lower() not in generic_names:
                yield Finding(start, end, kind)
    for start, end in spans(_SSH_USER, view.data):
        if view.text[start:end].lower() not in _GENERIC_USERS:
            yield Finding(start, end, Kind.USER)
    for pattern, is_sure in (
        (_SYSLOG, True),
        (_ROUTER, True),
        (_PRIVATE_REGISTRY, True),
        (_REGISTRY, True),
        (_POD, False),
        (_CALLED_POD, False),
        (_HOST_WITH_PORT, False),
        (_HOST_IN_SENTENCE, False),
        (_NAMED_HOST, True),
    ):
        for start, end in spans(pattern, view.data):
            name = view.text[start:end]
            is_host = is_sure or any(map(str.isdigit, name))
            if pattern is _HOST_IN_SENTENCE and _PLATFORM.fullmatch(name):
                continue
            if is_host and name.lower() not in _NOT_HOSTS and not _PUBLIC.match(name):
                yield Finding(start, end, Kind.HOST)
    yield from _addresses(view)
    yield from _hosts(view)
    for span in spans(_RESOURCE, view.data):
        yield Finding(*span, Kind.RESOURCE)
    for start, end in spans(_FOLDER, view.data):
        name = view.text[start:end].rstrip(".")
        if name.lower() not in _GENERIC_USERS and not is_placeholder(name) and name.strip(".*${}"):
            yield Finding(start, start + len(name), Kind.USER)


def _addresses(view: View) -> Iterator[Finding]:
    text = view.text
    for start, end in spans(_V4, view.data):
        if _is_internal(text[start:end], text[max(0, start - _NEAR) : start], text[end : end + 2]):
            yield Finding(start, end, Kind.ADDRESS)
    for start, end in spans(_V6, view.data):
        value = text[start:end]
        if (any(char.isdigit() for char in value) or value[:2].lower() in ("fe", "fd", "fc")) and value.count(
            ":"
        ) > 1:
            is_internal = _is_internal(value, "//", "") and text[start - 1 : start] != ":"
            if is_internal and (value.count(":") == _COLONS or "::" in value):
                yield Finding(start, end, Kind.ADDRESS)
    for start, end in spans(_MAC, view.data):
        if len(set(text[start:end].lower())) > 3:  # noqa: PLR2004 (ff:ff... and 00:00... are no device's)
            yield Finding(start, end, Kind.ADDRESS)


def _is_internal(value: str, before: str, after: str) -> bool:
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
    # Four small numbers are as often a version as an address.
    return (
        not address.is_global
        or bool(_PUBLIC_BEFORE.search(before))
        or re.match(r":\d{2}|/\d", after + "0") is not None
        or (before.endswith("[") and after.startswith("]"))
    )


def _hosts(view: View) -> Iterator[Finding]:
    text = view.text
    for start, end in spans(_HOST, view.data):
        name = text[start:end]
        if _AMBIGUOUS_HOST.search(name) and not _is_host(
            name, text[max(0, start - 12) : start], text[end : end + 2]
        ):
            continue
        is_public = re.search(r"(?i)(?:^|\.)example\.", name) or _PUBLIC.match(name)
        if not is_public and text[end : end + 1] != "(":
            yield Finding(start, end, Kind.HOST)
    for start, end in spans(_LABELLED_HOST, view.data):
        name = text[start:end]
        if (
            name.lower() not in _GENERIC_HOSTS
            and not re.search(r"(?i)example|^localhost", name)
            and not is_placeholder(name)
            and not is_identifier(name)
        ):
            yield Finding(start, end, Kind.HOST)


def _is_host(name: str, before: str, after: str) -> bool:
    """Whether a name is a host's, rather than an attribute with the same ending."""
    if before.endswith(("//", "@")) or re.match(r":\d|/", after):
        return True
    first = name.split(".", maxsplit=1)[0]
    return "-" in first or (any(char.isdigit() for char in first) and not after.startswith((" =", "=")))


# --- the patterns, in the syntax of RE2 ---

_V4 = r"\b\d{1,3}(?:\.\d{1,3}){3}\b"
_V6 = r"[0-9A-Fa-f]{0,4}(?::{1,2}[0-9A-Fa-f]{1,4}){2,7}\b"
_MAC = r"\b(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\b"
_PUBLIC_BEFORE = re.compile(
    r"(?i)(?:\b(?:ip|ips|ipv4|address|addr|host|hosts|hostname|server|servers|node|nodes|from|to|at|on|by"
    r"|for|of|with|via|user|rhost|source|src|dst|destination|target|caller|origin|peer|client|gateway|dns"
    r"|connect|connected|connecting|ping|ssh|nameserver|proxy|endpoint|upstream|remote"
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
_OPEN_ADDRESSES = word_set(
    "8.8.8.8 8.8.4.4 1.1.1.1 1.0.0.1 9.9.9.9 10.0.0.0 100.64.0.0 169.254.0.0 169.254.169.254 172.16.0.0 "
    "192.168.0.0"
)
_L = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,62})"
_HOST = (
    # endings of private networks only
    rf"\b(?:{_L}\.){{1,8}}(?i:svc\.cluster\.local|cluster\.local|svc|localdomain|intranet|corp|lan|intra"
    rf"|internal|local|private|home\.arpa|consul|ts\.net)\b"
    rf"|\b(?:{_L}\.){{1,8}}(?i:rds|elb|compute|compute-1|cache|es|ec2|redshift|eks|execute-api|docdb"
    rf"|mq)\.(?:{_L}\.){{0,3}}amazonaws\.com\b"
    rf"|\b(?:{_L}\.){{1,8}}(?i:amazonaws\.com|database\.windows\.net|blob\.core\.windows\.net"
    rf"|vault\.azure\.net|azurewebsites\.net|azmk8s\.io|servicebus\.windows\.net"
    rf"|redis\.cache\.windows\.net|documents\.azure\.com"
    rf"|run\.app|cloudfunctions\.net|snowflakecomputing\.com|mongodb\.net|ondigitalocean\.com"
    rf"|onmicrosoft\.com|ngrok\.io"
    rf"|ngrok-free\.app)\b"
    rf"|\b(?:[a-z]+[.-])?\d{{1,3}}[.-]\d{{1,3}}[.-]\d{{1,3}}[.-]\d{{1,3}}\.(?:{_L}\.){{1,6}}[a-z]{{2,10}}\b"
    rf"|\bip-\d{{1,3}}-\d{{1,3}}-\d{{1,3}}-\d{{1,3}}\b(?:\.{_L})*"
    # internal services and environments of a company
    r"|\b(?i:(?:jenkins|gitlab|jira|confluence|grafana|kibana|vault|bastion|ldap|vpn|nexus|artifactory"
    r"|sonar|sonarqube|prometheus|argocd|rancher|airflow|internal|intra|staging|stage|stg|prod|preprod|uat|qa"
    r"|db|redis|postgres|pg|mysql|mongo|kafka|rabbitmq|elastic|es|k8s|node|master|worker|ns|mx|smtp|proxy"
    r"|jump|nas|admin|backoffice|splunk|sentry|registry|harbor|minio)(?:[-_]?[a-z0-9]{1,20}){0,4})"
    rf"\.(?:{_L}\.){{1,5}}(?i:com|net|org|io|co|cloud|app|ai|dev|tech|de|fr|uk|eu|us|ch|nl|at|it|es|se|no"
    rf"|in|jp|cn|au|ca|br|ru|ua|by|kz|pl|cz|sk|hu|ro|bg|gr|tr|il|ae|sa|eg|ir|pk|lk|kr|tw|hk|sg|my|th|vn|id|ph"
    rf"|nz|za"
    r"|ng|ke|gh|mx|ar|cl|pt|be|dk|fi|ie|lt|lv|ee|si|hr|systems|services|group|bank)\b"
)
_AMBIGUOUS_HOST = re.compile(r"(?i)\.(?:local|private|internal|svc|consul|intra)$")
_LABELLED_HOST = (
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
    r"([A-Za-z][A-Za-z0-9]{0,30}(?:-[A-Za-z0-9]{1,30}){0,6}-[A-Za-z0-9]{0,20}\d{1,4}(?:\.[A-Za-z0-9-]{1,40}){0,5})\b"
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
# `ada@db7:~$`, `[ada@db7 src]#`, `ada@db7 ~/src (main) %`, `ada@db7>`: the user and the host.
_PROMPT = (
    r"(?:^|[\s\[(\"'`>])([a-z_][a-z0-9._-]*)@([A-Za-z][A-Za-z0-9._-]*)"
    r"(?::[~/][^\s$#%>]*[ ]?(?:\([^()\n]*\)[ ]?)?[$#%>]|[ ][^\n\]@]+\][$#%]|[ ](?:MINGW\d+|~)(?:[ \n]|\z)"
    r"|[ ][~/][^\s$#%>]*[ ](?:\([^()\n]*\)[ ])?[$#%>][ ]|[#>$%](?:[ \n]|\z)|[ ][#$%][ ])"
)
_SSH_USER = r"\b(?:ssh|scp|sftp|rsync|mosh)[ ](?:[^\s@]+[ ])*([a-z][a-z0-9._-]*)@"
_ROUTER = (
    r"(?:^|\n)([A-Za-z][A-Za-z0-9-]*\d[A-Za-z0-9-]*)(?:\([a-z-]+\))?[#>][ ]?"
    r"(?:show|conf|configure|enable|exit|ping|interface|copy|write|reload|end|no|display|set)\b"
)
_TIME = (
    r"(?:(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[ ]{1,2}\d{1,2}[ ](?:\d{4}[ ])?\d\d:\d\d:\d\d"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
)
_BSD_TIME = (
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[ ]{1,2}\d{1,2}[ ](?:\d{4}[ ])?\d\d:\d\d:\d\d[ ]"
)
_SYSLOG_HOST = r"([A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9])"
_SYSLOG = (
    rf"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov"
    rf"|Dec)[ ]{{1,2}}\d{{1,2}}[ ](?:\d{{4}}[ ])?\d\d:\d\d:\d\d[ ]{_SYSLOG_HOST}[ ]"
    r"(?:[\w./()-]+(?:\[\d+\])?:|:[ ]%|[\w.-]+\[\d+\])"
    rf"|(?:^|\n)(?:<\d{{1,3}}>)?{_BSD_TIME}{_SYSLOG_HOST}[ ]"
    rf"|{_TIME}[ ]{_SYSLOG_HOST}[ ][\w./()-]+\[\d+\]:"
    rf"|<\d{{1,3}}>(?:\d[ ])?{_TIME}[ ]{_SYSLOG_HOST}[ ]"
)
# Kubernetes appends, without vowels, a hash of the template and five characters for the pod.
_K8S = "bcdfghjklmnpqrstvwxz2456789"
_POD = rf"\b([a-z][a-z0-9.]*(?:-[a-z0-9]+)*-[{_K8S}]{{7,10}}-[{_K8S}]{{5}})\b"
_CALLED_POD = (
    r"(?i:\bpods?(?:/|[ ]?[:=]?[ ]?[\"'`]|[ ]?[:=][ ]?|[ ]name[ ]?[:=]?[ ]?[\"']?|[ ]"
    r"|_name[ ]?[:=][ ]?[\"']?)"
    r"|\bkubectl[ ](?:-n[ ]\S+[ ])?(?:logs|exec|attach|port-forward|cp|debug"
    r"|(?:describe|delete|get|top|edit)[ ]pods?)[ ](?:-\S+[ ](?:\d\S*[ ])?)*(?:pod/)?)"
    r"([a-z][a-z0-9]*(?:[.-][a-z0-9]+)*-[a-z0-9]+)"
)
_PRIVATE_REGISTRY = (
    r"\b((?:[a-z0-9-]+\.)+(?:azurecr\.io|jfrog\.io|artifactory\.cloud|pkg\.dev|scr\.io|cr\.aliyuncs\.com"
    r"|ocir\.io|icr\.io)(?:/[a-z0-9][a-z0-9._-]*)?)"
    r"|\b((?:[a-z]+\.)?gcr\.io/[a-z][a-z0-9-]+)"
)
_REGISTRY = (
    r"(?:\b(?:docker|podman|buildah|skopeo|crane|nerdctl|helm)[ ][^\n|;]*?|\b(?:oci|docker)://|\bFROM[ ]+"
    r"|(?i:\b(?:image|repository|registry)(?:[ ]name)?[\"']?[ :=]+[\"']?|\bmanifest[ ]for[ ]"
    r"|\bErrImagePull:[ ]"
    r"|\bpull(?:ed|ing)?(?:[ ](?:image|from))*[ ][\"']?|\bpush(?:ed|ing)?(?:[ ]to)?[ ][\"']?))"
    r"([a-z0-9-]+(?:\.[a-z0-9-]+)*(?::\d{2,5}|\.[a-z]{2,12}(?::\d{2,5})?))/[a-z0-9]"
    r"|\b(?:docker|podman|oc|helm[ ]registry)[ ]login[ ](?:-\S+[ ]\S+[ ])*"
    r"([a-z0-9-]+(?:\.[a-z0-9-]+)*(?::\d+)?)"
)
# A host named after what it does, with a number: `web07`, `shop-db-3`, `srv-x12`.
_HOST_ROLE = (
    r"(?:web|www|db|sql|pg|mysql|mongo|redis|cache|mq|kafka|rabbit|queue|broker|app|api|srv|svr|server|host"
    r"|node|vm|esx|hv|build|ci|jenkins|gitlab|runner|edge|lb|proxy|gw|gateway|fw|vpn|dns|ns|ntp|mail|mx"
    r"|smtp|imap|ldap|ad|dc|auth|sso|nas|san|storage|backup|bak|file|ftp|batch|job|worker|master|slave"
    r"|replica|gpu|hpc|log|mon|metrics|es|elastic|search|bastion|jump|k8s|kube|etcd|docker|prod|prd|staging"
    r"|stg|uat)"
)
_NAMED_HOST = (
    rf"\b((?:[a-z][a-z0-9]*-)*{_HOST_ROLE}(?:-[a-z]+)*-?0\d{{1,2}}(?:\.[a-z0-9-]+)*)\b"
    rf"|\b([a-z][a-z0-9]*-(?:[a-z]+-)*{_HOST_ROLE}-\d{{1,3}}(?:\.[a-z0-9-]+)*)\b"
    rf"|\b((?:[a-z]+-)+{_HOST_ROLE}\d{{1,3}}(?:\.[a-z0-9-]+)*)\b"
    r"|\b((?:db|sql|pg|web|www|mq|kafka|redis|lb|proxy|gw|vpn|dns|mail|smtp|ldap|bastion|jump|build|jenkins"
    r"|runner"
    r"|cache|edge|mon|backup)\d{2}(?:\.[a-z0-9-]+)*)\b"
    r"|\b((?:srv|svr|vm|esxi?|hv|pc|ws|nb|dc|fw|sw|rtr|nas|san)-?[a-z]{0,8}-?\d{2,4}(?:\.[a-z0-9-]+)*)\b"
)
# A name with a port or a path, or one that could not be resolved.
_HOST_WITH_PORT = (
    r"(?:^|[\s\"'(@=,/])([a-z][a-z0-9]*(?:-[a-z0-9]+)*)(?::\d{4,5}\b(?:[^\w.:]|\z)|:/[a-z]"
    r"|/\d{1,3}(?:\.\d{1,3}){3})"
    r"|(?i:\b(?:ENOTFOUND|EAI_AGAIN|lookup|resolve(?:[ ]host(?:[ ]?name)?)?|host[ ]?name"
    r"|unknown[ ]host)[: ][ ]?[\"'`]?)"
    r"([a-z][a-z0-9]*(?:-[a-z0-9]+)*)\b"
    r"|(?i:\b(?:host|server|node|instance|machine|broker|replica"
    r"|member)[ ][\"'`]?)([a-z]{2,}\d{1,4}(?:\.[a-z0-9-]+)*)\b"
)
# A numbered name that people work on, or that is said to fail: `deploy to shop-eu-3`, `shop14 is down`.
_NUMBERED = r"[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+){0,5}(?:-?\d{1,4}|-[A-Z0-9]{2,8})(?:\.[A-Za-z0-9-]+){0,5}"
_HOST_IN_SENTENCE = (
    r"(?i:\b(?:ssh(?:[ ]in)?(?:to)?|log(?:ged)?[ ](?:in[ ]?to|on[ ]?to)|logs[ ]on|reach|reboot(?:ed|ing)?"
    r"|restart(?:ed"
    r"|ing)?|deploy(?:ed)?[ ]to|shipped[ ]from|failover[ ]to|migrated?[ ](?:from|to)|box|machine|printer"
    r"|laptop"
    r"|workstation|desktop|server|host|vm|router|switch|firewall)[ ][\"'`]?)"
    rf"({_NUMBERED})\b"
    rf"|\b({_NUMBERED})[\"'`]?[ ](?i:(?:is|was|went|has[ ]been|are)[ ](?:back[ ])?(?:down|unreachable|offline"
    rf"|full"
    r"|out[ ]of[ ](?:disk|memory|space)|rebooted|restarted|overloaded|decommissioned|not[ ](?:responding"
    r"|reachable))"
    r"|(?:times?|timed)[ ]out|is[ ]stuck|crash(?:ed|es)|hangs|(?:does[ ]not|doesn't|did[ ]not)[ ](?:respond"
    r"|answer))\b"
)
_PLATFORM = re.compile(
    r"(?i)(?:ubuntu|debian|alpine|fedora|centos|rhel|windows|win|macos|ios|android|python|py|java|jdk|node"
    r"|php|go|ruby"
    r"|gcc|clang|cuda|postgres|mysql|step|phase|part|chapter|figure|table|section|version|release|v|port|room"
    r"|page"
    r"|issue|feature|fix|test|case|utf|sha|iso|x86|arm|http|ipv|es|gpt|claude|llama)[-.]?\d[\w.-]*"
    r"|.*-\d+(?:\.\d+)+"
)
_PUBLIC = re.compile(
    r"(?i)^(?:(?:[\w-]+\.)*docker\.(?:io|com)|ghcr\.io|quay\.io|gcr\.io/(?:distroless|google\w*|k8s\w*"
    r"|cloud-\w+|knative-\w+|tekton-\w+)"
    r"|k8s\.gcr\.io.*|registry\.k8s\.io|mcr\.microsoft\.com|public\.ecr\.aws|nvcr\.io|cgr\.dev|lscr\.io"
    r"|registry\.(?:npmjs\.org|yarnpkg\.com"
    r"|terraform\.io|gitlab\.com|access\.redhat\.com|redhat\.io|opentofu\.org|hub\.docker\.com"
    r"|bazel\.build)|github\.com|gitlab\.com|bitbucket\.org"
    r"|.*\.(?:python|pypi|golang|rust-lang|crates|rubygems|debian|ubuntu|apache|mozilla|kernel|gnu"
    r"|readthedocs|wikipedia)\.(?:org|io|com)"
    r"|(?:prometheus|airflow|grafana|kafka|argocd|sentry|redis|mongodb?|elastic|nexus|vault|jenkins|admin"
    r"|staging|smtp|proxy)\.(?:io|org|com|apache\.org)"
    r"|(?:privatelink|your[\w-]*|example)\..*|[a-z0-9]+\.amazonaws\.com|vaultcore\.azure\.net"
    r"|localhost(?::\d+)?)$"
)
_ANY = (
    _V4, _V6, _MAC, _HOST, _LABELLED_HOST, _RESOURCE, _FOLDER, _PROMPT, _ROUTER, _SYSLOG, _POD,
    _CALLED_POD, _PRIVATE_REGISTRY, _REGISTRY, _HOST_WITH_PORT, _HOST_IN_SENTENCE,
    _NAMED_HOST, _SSH_USER,
)  # fmt: skip
_GENERIC_USERS = word_set(
    "user username me you your-name name shared public default admin ubuntu runner vscode node app "
    "appuser root guest all users administrator user1 student sandbox ec2-user vagrant jovyan circleci "
    "git"
)
_NOT_HOSTS = word_set(
    "localhost host hostname server machine info warn warning error debug trace fatal critical notice "
    "alert emerg level utc gmt am pm cet est pst sha1 sha256 sha384 sha512 md5 utf8 base64 http1 http2 "
    "http3 ipv4 ipv6 python2 python3 es5 es6 es2015 es2020 x86 i386 win32 win64 log4j oauth2 mp3 mp4 s3 "
    "ec2 k8s v1 v2 v3"
)
_GENERIC_HOSTS = word_set(
    "localhost host hostname server example test db database redis postgres mysql mongo kafka www api web"
)
