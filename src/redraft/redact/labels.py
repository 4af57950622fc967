"""What a name says of its value: `DB_PASSWORD` holds a secret, `max_tokens` and `token_type` do not."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from redraft.redact.kinds import Kind
from redraft.redact.words import word_set


class Strength(IntEnum):
    """Say how surely a name stands for a secret."""

    NONE = 0
    WEAK = 1
    CODE = 2
    TOKEN = 3
    PASSWORD = 4


_PASSWORDS = word_set(
    "password passwords passwd passwds pwd pswd passphrase passcode pass pw psk passwort kennwort "
    "passe wachtwoord contrasena contraseña senha mdp secret secrets credential credentials cred creds "
    "mnemonic userpassword storepass keypass requirepass userpass rootpass dbpass adminpass "
    "pasword passwrod passsword passord paswd passwort losenord lösenord heslo haslo parola adgangskode "
    "salasana"
)
_TOKENS = word_set(
    "token apitoken authtoken accesstoken apikey apikeys jwt bearer sessionid sessiontoken "
    "authorization clientsecret secretkey accesskey privatekey secretaccesskey pat accountkey "
    "sharedaccesskey apisecret jsessionid phpsessid aspsessionid sessid connectsid"
)
_CODES = word_set("otp pin cvv cvc totp tan passkey mfa 2fa")
_WEAK = word_set(
    "key auth sig signature session sid cookie cookies csrf xsrf salt seed dsn code csrftoken appid"
)
_OF_KEY = word_set(
    "api access secret private encryption signing auth authentication license master account storage "
    "subscription shared deploy webhook session client admin app application consumer service ssh gpg "
    "pgp hmac aes crypto decryption cipher integration developer personal root project unseal recovery "
    "wifi wpa network functions function product"
)
_OF_CODE = word_set(
    "verification security confirmation auth authentication login access sms backup recovery 2fa mfa "
    "otp totp pin unlock door gate entry alarm digit pairing activation"
)
_OF_SESSION = word_set("auth login user admin web")
_OF_LOOKUP = word_set(
    "primary foreign sort public cache error exit status partition row hash dict map registry object "
    "group index routing shortcut any"
)
_NOT = word_set(
    "count length len limit limits max min id ids type types url uri endpoint path file filename dir "
    "folder field fields ttl expiry expires expiration expired policy algorithm alg format usage "
    "budget size index idx prefix suffix manager store label hint rotation version status required "
    "enabled disabled at in class provider headers env var variable cost price rate window name names "
    "error errors exception check checks checker validator validation strength reset form input "
    "prompt page test tests tester parser kind rule rules regex pattern template placeholder "
    "generator helper handler factory model schema map mapper list set logits probs embedding "
    "embeddings position positions ids_ stream per mode source scope scopes age days reuse bucket "
    "reader writer error_message message messages description title text used valid invalid is has "
    "can "
    "json py txt yaml yml toml md sh js ts log pem crt key_file html csv"
)
_NOT_FIRST = word_set(
    "max min num no n is has use need needs require requires total per next prev eos bos pad unk stop "
    "start end first last current input output completion public"
)
_PAIRS = (["code", "verifier"], ["secret", "id"])
"""What is no secret by its last word alone."""
_LONGEST = 100
_ENDINGS = ("password", "passwd", "passphrase", "secret", "pwd", "storepass", "keypass")
_TOKEN_ENDINGS = ("token", "apikey", "secretkey", "accesskey")
_SPLIT = re.compile(r"2[fF][aA]|[A-Z]+(?![a-z])|[A-Z]?[a-zà-ÿ]+|\d+")
_KINDS = {
    Strength.PASSWORD: Kind.PASSWORD,
    Strength.TOKEN: Kind.TOKEN,
    Strength.CODE: Kind.CODE,
    Strength.WEAK: Kind.SECRET,
}


@lru_cache(maxsize=4096)
def strength_of(name: str) -> Strength:
    """Say how surely a name of a variable, key, flag, field or header stands for a secret."""
    # What is longer is no name.
    words = [word.lower() for word in _SPLIT.findall(name)] if len(name) <= _LONGEST else []
    while words and (words[-1].isdigit() or words[-1] in ("value", "plain", "raw", "string", "here", "data")):
        words.pop()
    is_pair = words[-2:] in _PAIRS
    if not words or (words[-1] in _NOT and not is_pair) or words[0] in _NOT_FIRST:
        return Strength.NONE
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    is_password = last in _PASSWORDS or last.endswith(_ENDINGS)
    if not is_pair and (
        is_password or any(word in _PASSWORDS for word in words[:-1] if word not in ("pass", "pw"))
    ):
        return Strength.CODE if words[:2] == ["one", "time"] else Strength.PASSWORD
    is_token = is_pair or last in _TOKENS or last.endswith(_TOKEN_ENDINGS)
    is_constant = name.isupper() and before not in _OF_LOOKUP
    is_key = last in ("key", "keys") and (before in _OF_KEY or (bool(before) and is_constant))
    if is_token or is_key or (last in ("session", "sid") and before in _OF_SESSION):
        return Strength.TOKEN
    if last in _CODES or (last in ("code", "codes") and before in _OF_CODE):
        return Strength.CODE
    if last in _WEAK and before not in _OF_LOOKUP:
        return Strength.WEAK
    return Strength.NONE


def kind_of(name: str) -> Kind:
    """Return what a person would call the value of a name."""
    strength = strength_of(name)
    if strength is Strength.TOKEN and "key" in name.lower():
        return Kind.API_KEY
    if strength is Strength.PASSWORD and re.search("secret|cred", name, re.IGNORECASE):
        return Kind.SECRET
    return _KINDS.get(strength, Kind.SECRET)


def is_secret_name(name: str) -> bool:
    """Say whether a name of an environment variable stands for a secret: `OPENAI_API_KEY`, `DB_PASS`."""
    strength = strength_of(name)
    return strength > Strength.WEAK or (strength is Strength.WEAK and name.isupper())
