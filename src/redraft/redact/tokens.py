"""Tokens of known shape: what providers publish of theirs, private keys, hashes of passwords."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.redact.engine import at, has_any, spans
from redraft.redact.kinds import Found, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.redact.view import View

_W = r"[A-Za-z0-9_-]"
_A = r"[A-Za-z0-9]"

_SHAPES = (
    rf"\bsk-{_W}{{16,}}",  # OpenAI, Anthropic, OpenRouter, DeepSeek and all who do as they do
    rf"\b(?:sk|rk|pk)_(?:live|test|prod)_{_A}{{10,}}",  # Stripe, Clerk
    r"\bwhsec_[A-Za-z0-9+/]{16,}=*",
    rf"AIza{_W}{{30,}}",  # Google
    rf"\bya29\.{_W}{{20,}}",
    rf"GOCSPX-{_W}{{20,}}",
    rf"\b1//0{_W}{{30,}}",
    r"\b(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA)[A-Z0-9]{16}\b",  # AWS
    r"\bABSK[A-Za-z0-9+/]{40,}=*",
    r"\bamzn\.mws\.[0-9a-f-]{30,}",
    rf"\bgh[pousr]_{_A}{{20,}}",  # GitHub
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\bgl[a-z]{2,6}-[A-Za-z0-9_.-]{16,}",  # GitLab
    r"\bGR1348941[A-Za-z0-9_-]{18,}",
    r"\bxox[a-z]-[A-Za-z0-9-]{10,}|\bxoxe\.xox[a-z]-[A-Za-z0-9-]{10,}|\bxapp-\d-[A-Za-z0-9-]{10,}",  # Slack
    r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_+-]{16,}",
    r"discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}",
    r"hooks\.zapier\.com/hooks/catch/\d+/\w{6,}|hook\.[\w.]{0,20}make\.com/\w{20,}",
    r"maker\.ifttt\.com/trigger/[^\s\"'<>/]{1,80}/(?:json/)?with/key/[\w-]{16,}",
    r"api\.vercel\.com/v1/integrations/deploy/[\w/]{10,}",
    r"webhook\.office\.com/webhookb2/[0-9a-f@-]{60,}/IncomingWebhook/[\w/-]{30,}",
    rf"\b[MNO]{_W}{{23,27}}\.{_W}{{6,7}}\.{_W}{{27,40}}",  # Discord
    rf"(?:\b|bot)\d{{8,10}}:A[A-Za-z]{_W}{{32,35}}",  # Telegram
    rf"\bhf_{_A}{{20,}}|\bapi_org_{_A}{{20,}}",  # Hugging Face
    rf"\bnpm_{_A}{{30,}}",
    rf"\bpypi-AgE{_W}{{16,}}",
    r"\bdo[opr]_v1_[a-f0-9]{40,}",  # DigitalOcean
    r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",  # Shopify
    rf"\bSG\.{_W}{{16,}}\.{_W}{{16,}}",  # SendGrid
    r"\bkey-[0-9a-f]{32}\b|\b[0-9a-f]{32}-us\d{1,2}\b|\bSK[0-9a-f]{32}\b",  # Mailgun, Mailchimp, Twilio
    r"\bdapi[a-f0-9]{32}(?:-\d)?",  # Databricks
    (
        rf"\b(?:gsk|r8|tgp_v1|fw|csk|jina|vercel_blob_rw|sntry[su]|lin_api|rubygems|sbp|ntn|figd|glsa|glc"
        rf"|pscale_tkn|pscale_pw|cfut|cfat|nfp|vc[pkart]|sg[pd]|zpka|CCIPAT|CCIPRJ|bkua)_{_W}{{20,}}"
    ),
    (
        rf"\b(?:xai|pplx|nvapi|tvly|fc|PMAK|NRAK|CFPAT|rnd|bkua|dckr_pat|exa|voy|pa|re)-{_W}{{24,}}"
        rf"|\bdckr_pat_{_W}{{20,}}"
    ),
    r"\blsv2_(?:pt|sk)_[a-f0-9_]{32,}",
    rf"\bsq0[a-z]{{3}}-{_W}{{20,}}|\bEAA[A-Za-z0-9]{{40,}}",  # Square, Meta
    rf"\btskey-[a-z]{{2,12}}-{_W}{{16,}}|\bpat-[a-z]{{2}}\d-{_W}{{30,}}",  # Tailscale, HubSpot
    rf"\bFLW(?:SEC|PUB)K(?:_TEST)?-{_A}{{24,}}|\brzp_(?:live|test)_{_A}{{14}}",  # Flutterwave, Razorpay
    r"\bLTAI[A-Za-z0-9]{12,26}\b|\bAKID[A-Za-z0-9]{28,36}\b",  # Alibaba, Tencent
    rf"\bsq[apu]_[0-9a-f]{{40}}|\bpat{_A}{{14}}\.[0-9a-f]{{64}}|\b4/0A{_W}{{30,}}",  # Sonar, Airtable, Google
    r"\baccess-(?:sandbox|development|production)-[0-9a-f-]{36}",  # Plaid
    rf"\b[xyz]prv{_A}{{100,}}|\bnsec1{_A}{{58}}",  # keys of wallets
    rf"\bsl\.{_W}{{60,}}|\bv[1-4]\.(?:local|public)\.{_W}{{40,}}",  # Dropbox, PASETO
    rf"\bhv[sbr]\.{_W}{{20,}}|\bs\.{_A}{{24}}\b",  # Vault
    r"\bATATT3[A-Za-z0-9_=-]{30,}|\bATCTT3[A-Za-z0-9_=-]{30,}",  # Atlassian
    rf"\b{_A}{{14}}\.atlasv1\.{_W}{{40,}}",  # Terraform
    rf"\bdp\.(?:pt|st|ct|scim|audit)\.{_W}{{30,}}",  # Doppler
    rf"\boy2{_A}{{43}}\b",  # NuGet
    r"\bAGE-SECRET-KEY-1[0-9A-Z]{50,}",
    rf"\bfm[12]_{_W}{{40,}}|\bFlyV1 {_W}{{40,}}",
    rf"\b{_A}{{3}}\dQ~[A-Za-z0-9~_.-]{{31,34}}",  # Entra
    (
        rf"\b[a-z][a-z0-9]{{1,11}}_(?:live|test|prod|dev|secret|pat|key|token|sk|api"
        rf"|v1)_{_A}{{16,}}"
    ),  # and whoever does likewise
)
_API_KEY = "|".join(_SHAPES)
# A shape of its own, since what has to follow may come at any distance.
_JWT = r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,3}"
_HASH = (
    r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}|\$argon2(?:id|i|d)\$[^\s\"'<>]{20,500}"
    r"|\$(?:1|5|6|y|7|gy)\$[./A-Za-z0-9=$,]{1,40}\$[./A-Za-z0-9]{22,}"
    r"|\bpbkdf2_sha\d{1,3}\$\d+\$[^\s\"'<>]{20,200}"
    r"|\{SSHA\d{0,3}\}[A-Za-z0-9+/=]{20,}"
)
_LONGEST_KEY = 20_000
_KEY_BEGINS = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----"
)
_KEY_BODY = (
    r"(?:[ \t>|*#\"'+\\]{0,40}(?:\\r|\\n|\r|\n|[ ])[ \t>|*#\"'+\\rn]{0,40}"
    r"(?:[A-Za-z0-9+/=]{20,}|(?:Proc-Type|DEK-Info|Version|Comment):[^\r\n\\]*))*"
)
# Without the lines around it: an RSA key, one on a curve, one of PuTTY's.
_KEY_BARE = (
    r"\b(?:MII[A-Za-z0-9+/]{3}IBA(?:AKC|DANBgkqhkiG9w0BAQEFAASC)|MHcCAQEEI|MIG[A-Za-z0-9+/]AgEAM|MC4CAQAwBQYDK2Vw)"
    r"[A-Za-z0-9+/=\\\s]{24,}"
    r"|\bPrivate-Lines: \d+\s+[A-Za-z0-9+/=\s]{40,}"
)
_KEY_ENDS = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|---- END SSH2 ENCRYPTED PRIVATE KEY ----"
_ANY = (_API_KEY, _JWT, _HASH, _KEY_BEGINS, _KEY_BARE)


def tokens(view: View) -> Iterator[Found]:
    """Yield tokens whose shape says what they are."""
    if not has_any(_ANY, view.data):
        return
    for start, end in spans(_API_KEY, view.data):
        text = view.text[start:end]
        if any(char.isdigit() for char in text) or (not text.islower() and "_" not in text[8:]):
            yield Found(start, end, Kind.API_KEY)
    for span in spans(_JWT, view.data):
        yield Found(*span, Kind.TOKEN)
    for span in spans(_HASH, view.data):
        yield Found(*span, Kind.PASSWORD)
    for start, end in spans(_KEY_BARE, view.data):
        yield Found(start, start + len(view.text[start:end].rstrip()), Kind.PRIVATE_KEY)
    yield from _private_keys(view)


def _private_keys(view: View) -> Iterator[Found]:
    ends = [end for _, end in spans(_KEY_ENDS, view.data)]
    done = 0
    for start, end in spans(_KEY_BEGINS, view.data):
        if start < done:
            continue
        while ends and ends[0] < end:
            ends.pop(0)
        # One that is cut off goes on as keys do.
        cut_off = at(_KEY_BODY, view.data[end : end + _LONGEST_KEY], 0)
        done = ends[0] if ends else end + cut_off.end()
        yield Found(start, done, Kind.PRIVATE_KEY)
