"""Texts with secrets, put together when a test runs: no whole secret stands in any file."""

import base64
import random
import re
import string
from dataclasses import dataclass

LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
LETTERS = LOWER + UPPER
MIXED = LETTERS + DIGITS
WEB = MIXED + "_-"
HEX = DIGITS + "abcdef"
LONG_ENOUGH_TO_TELL = 5
"""Characters of a secret that say something of it."""


@dataclass(frozen=True)
class Row:
    name: str
    text: str
    secret: str


def leaks(row, text):
    """Say whether a piece of the secret is in a text that was not in what stood around it."""
    around = row.text.replace(row.secret, "")
    size = LONG_ENOUGH_TO_TELL
    pieces = {row.secret[at : at + size] for at in range(len(row.secret) - size + 1)}
    return any(piece in text and piece not in around for piece in pieces)


@dataclass(frozen=True)
class Line:
    kind: str
    template: str
    text: str
    parts: tuple[str, ...]


def leaks_parts(line, text):
    """Say whether a word of what is to be withheld, of three characters or more, stands in a text."""
    around = re.findall(r"\w+", re.sub("«.*?»", " ", line.template))
    words = {word for part in line.parts for word in re.findall(r"\w{3,}", part)}
    return any(re.search(rf"\b{re.escape(word)}\b", text) for word in words - set(around))


class Maker:
    """Make values as generators and people make them; the same seed makes the same ones."""

    def __init__(self, seed=7):
        self.dice = random.Random(seed)  # noqa: S311 (a test's, to be the same each time)

    def of(self, alphabet, length):
        made = "".join(self.dice.choice(alphabet) for _ in range(length))
        # What a generator makes has digits in it; a short draw may lack them by chance.
        return (
            made
            if not set(alphabet) & set(DIGITS) or any(char.isdigit() for char in made)
            else made[:-1] + "7"
        )

    def password(self):
        """Make one of the kinds that people make up."""
        word = self.dice.choice(
            ["hunter", "Tiger", "monkey", "Sommer", "dragon", "Berlin", "qwertz", "Welcome"]
        )
        return self.dice.choice(
            [
                f"{word}{self.dice.randrange(10, 9999)}",
                f"{word}{self.dice.choice('!@#$')}{self.dice.randrange(10, 99)}",
                f"{word[:3]}0{word[3:]}&{self.dice.randrange(2, 9)}x",
                self.of(MIXED, 12),
                self.of(MIXED + "!@#^*-_", 16),
            ]
        )

    def token(self):
        """Make one of the kinds that programs make, without a prefix that says whose it is."""
        return self.dice.choice(
            [self.of(MIXED, 24), self.of(MIXED, 40), self.of(HEX, 32), self.of(HEX, 64), self.of(WEB, 43)]
        )


def card(make):
    """Return sixteen digits with a right check digit."""
    body = "4" + make.of(DIGITS, 14)
    total = sum(
        sum(divmod(int(digit) * 2, 10)) if place % 2 == 0 else int(digit) for place, digit in enumerate(body)
    )
    number = body + str(-total % 10)
    return " ".join(number[at : at + 4] for at in range(0, 16, 4))


def iban(make):
    """A German account number with right check digits."""
    body = make.of(DIGITS, 18)
    check = 98 - int(f"{body}131400") % 97
    return f"DE{check:02}{body}"


def person(make):
    """A text with a name, a card and an address of e-mail, and what of it belongs to a person."""
    number, mail = card(make), f"m.lopez{make.of(DIGITS, 3)}@telco-mail.net"
    return f"my name is Maria Lopez, card {number}, mail {mail}", ("Lopez", number, mail)


def provider_tokens(make):
    """Yield the published shapes, each by the name of who publishes it."""
    of = make.of
    jwt = "ey" + "J" + of(MIXED, 33) + ".ey" + "J" + of(WEB, 60) + "." + of(WEB, 43)
    yield from [
        ("openai project", "sk-" + "proj-" + of(WEB, 60) + "T3Blbk" + "FJ" + of(WEB, 40)),
        ("openai old", "sk-" + of(MIXED, 48)),
        ("openai service", "sk-" + "svcacct-" + of(WEB, 74)),
        ("anthropic", "sk-" + "ant-api03-" + of(WEB, 93) + "AA"),
        ("openrouter", "sk-" + "or-v1-" + of(HEX, 64)),
        ("google", "AI" + "za" + of(WEB, 35)),
        ("google oauth", "ya" + "29." + of(WEB, 80)),
        ("google client", "GOC" + "SPX-" + of(WEB, 28)),
        ("aws id", "AK" + "IA" + of(UPPER + "234567", 16)),
        ("aws session id", "AS" + "IA" + of(UPPER + "234567", 16)),
        ("github", "gh" + "p_" + of(MIXED, 36)),
        ("github oauth", "gh" + "o_" + of(MIXED, 36)),
        ("github server", "gh" + "s_" + of(MIXED, 36)),
        ("github fine", "github" + "_pat_" + of(MIXED, 22) + "_" + of(MIXED, 59)),
        ("gitlab", "gl" + "pat-" + of(WEB, 20)),
        ("gitlab runner", "gl" + "rt-" + of(WEB, 20)),
        ("slack bot", "xo" + "xb-" + of(DIGITS, 12) + "-" + of(DIGITS, 13) + "-" + of(MIXED, 24)),
        ("slack user", "xo" + "xp-" + of(DIGITS, 12) + "-" + of(DIGITS, 12) + "-" + of(HEX, 32)),
        ("slack app", "xa" + "pp-1-A" + of(UPPER + DIGITS, 10) + "-" + of(DIGITS, 13) + "-" + of(HEX, 64)),
        (
            "slack hook",
            "hooks.slack.com/" + "services/T" + of(UPPER, 8) + "/B" + of(UPPER, 8) + "/" + of(MIXED, 24),
        ),
        ("stripe live", "sk_" + "live_" + of(MIXED, 24)),
        ("stripe test", "sk_" + "test_" + of(MIXED, 24)),
        ("stripe restricted", "rk_" + "live_" + of(MIXED, 24)),
        ("stripe hook", "wh" + "sec_" + of(MIXED, 32)),
        ("hugging face", "hf" + "_" + of(LETTERS, 34)),
        ("npm", "np" + "m_" + of(MIXED, 36)),
        ("pypi", "py" + "pi-AgEIcHlwaS5vcmc" + of(WEB, 120)),
        ("sendgrid", "S" + "G." + of(WEB, 22) + "." + of(WEB, 43)),
        ("twilio", "S" + "K" + of(HEX, 32)),
        ("mailgun", "ke" + "y-" + of(HEX, 32)),
        ("databricks", "da" + "pi" + of(HEX, 32)),
        ("digitalocean", "do" + "p_v1_" + of(HEX, 64)),
        ("shopify", "shp" + "at_" + of(HEX, 32)),
        ("groq", "gs" + "k_" + of(MIXED, 52)),
        ("replicate", "r" + "8_" + of(MIXED, 37)),
        ("vault", "hv" + "s." + of(WEB, 24)),
        ("telegram", of("123456789", 10) + ":A" + "A" + of(WEB, 33)),
        ("discord", "M" + of(MIXED, 23) + "." + of(MIXED, 6) + "." + of(WEB, 38)),
        ("grafana", "gl" + "sa_" + of(MIXED, 32) + "_" + of(HEX, 8)),
        ("langsmith", "lsv2" + "_pt_" + of(HEX, 32) + "_" + of(HEX, 10)),
        ("xai", "xa" + "i-" + of(MIXED, 80)),
        ("tavily", "tv" + "ly-" + of(MIXED, 32)),
        ("linear", "lin" + "_api_" + of(MIXED, 40)),
        ("sentry", "sntr" + "ys_" + of(MIXED, 60)),
        ("atlassian", "ATA" + "TT3xFfGF0" + of(WEB, 170)),
        ("doppler", "dp" + ".pt." + of(MIXED, 43)),
        ("zapier hook", "hooks.zapier.com/" + "hooks/catch/" + of("123456789", 7) + "/" + of(MIXED, 12)),
        ("tailscale", "tskey" + "-auth-" + of(MIXED, 12) + "-" + of(MIXED, 32)),
        ("hubspot", "pa" + "t-na1-" + "-".join(of(HEX, size) for size in (8, 4, 4, 4, 12))),
        ("notion", "secr" + "et_" + of(MIXED, 43)),
        ("circleci", "CCI" + "PAT_" + of(MIXED, 40)),
        ("cloudflare", "cf" + "ut_" + of(MIXED, 40)),
        ("netlify", "nf" + "p_" + of(MIXED, 36)),
        ("vercel", "vc" + "p_" + of(MIXED, 40)),
        ("sourcegraph", "sg" + "p_" + of(MIXED, 40)),
        ("sonar", "sq" + "u_" + of(HEX, 40)),
        ("airtable", "pa" + "t" + of(MIXED, 14) + "." + of(HEX, 64)),
        ("plaid", "acc" + "ess-production-" + "-".join(of(HEX, size) for size in (8, 4, 4, 4, 12))),
        ("flutterwave", "FLW" + "SECK-" + of(HEX, 32) + "-X"),
        ("razorpay", "rzp" + "_live_" + of(MIXED, 14)),
        ("alibaba id", "LT" + "AI" + of(MIXED, 20)),
        ("tencent id", "AK" + "ID" + of(MIXED, 32)),
        ("dropbox", "s" + "l." + of(WEB, 130)),
        ("paseto", "v" + "2.local." + of(WEB, 80)),
        ("google code", "4/" + "0A" + of(WEB, 60)),
        ("nostr", "nse" + "c1" + of(LOWER + DIGITS, 58)),
        ("wallet", "xpr" + "v9" + of(MIXED, 106)),
        ("somebody's own", "acme" + "_live_" + of(MIXED, 32)),
        ("somebody's, of two words", "acme" + "-key-" + of(MIXED, 40)),
        ("json web token", jwt),
        ("bcrypt", "$2" + "b$12$" + of(MIXED + "./", 53)),
        ("argon2", "$argon2" + "id$v=19$m=65536,t=3,p=4$" + of(MIXED, 22) + "$" + of(MIXED, 43)),
        ("crypt", "$" + "6$" + of(MIXED, 16) + "$" + of(MIXED + "./", 86)),
    ]


IN_TEXT = (
    "The call failed with 401: Incorrect key {} was sent.",
    "{}",
    'client = Client("{}")',
    "I then ran `export X={}` and tried again.",
)
"""Where a token stands whose shape says what it is."""

PASSWORD_PLACES = (
    "password={}",
    "PASSWORD={}",
    "DB_PASSWORD={}\nDB_HOST=db",
    "export PGPASSWORD='{}'",
    'password = "{}"',
    "password: {}",
    "  password: '{}'  # production",
    '{{"user": "bob", "password": "{}"}}',
    '{{\\"user\\": \\"bob\\", \\"password\\": \\"{}\\"}}',
    "'passwd': '{}',",
    "pwd={}",
    "Server=db;Database=x;User Id=sa;Password={};Encrypt=true",
    "jdbc:mysql://db:3306/x?user=bob&password={}&useSSL=false",
    "https://shop.test/login?user=bob&passwd={}",
    "--password {} --verbose",
    "--password={}",
    '["--password", "{}"]',
    "--db-pass {}",
    "mysql -u root -p{} shop",
    "sshpass -p '{}' ssh bob@build",
    "curl -u bob:{} https://shop.test/",
    "curl --user 'bob:{}' https://shop.test/",
    "postgresql://bob:{}@db:5432/shop",
    "redis://:{}@cache:6379/0",
    "mongodb+srv://bob:{}@cluster0.test/shop",
    "git clone https://bob:{}@git.test/x.git",
    "CREATE USER bob WITH PASSWORD '{}';",
    "ALTER USER 'bob'@'%' IDENTIFIED BY '{}';",
    'conn = connect(host="db", user="bob", password="{}")',
    'session.auth = ("bob", "{}")',
    'requests.get(url, auth=("bob", "{}"))',
    'client.login("bob", "{}")',
    'os.environ["DB_PASSWORD"] = "{}"',
    'monkeypatch.setenv("DB_PASSWORD", "{}")',
    "<password>{}</password>",
    '<add key="Password" value="{}" />',
    "[db]\nuser = bob\npassword = {}\n",
    "- name: DB_PASSWORD\n  value: {}",
    'variable "password" {{ default = "{}" }}',
    "machine git.test login bob password {}",
    "db.test:5432:shop:bob:{}",
    "$password = '{}';",
    "'password' => '{}',",
    "-Dspring.datasource.password={}",
    "spring.datasource.password={}",
    "| password | {} |",
    "The password is {}.",
    "I logged in with the password {} and it failed.",
    "The admin password was set to `{}` before the run.",
    'Login failed for user bob with password "{}"',
    "password for bob: {}",
    "My passphrase is {}, please use it.",
    "I used `{}` as the password.",
    "credentials: bob / {}",
    "I tried the credentials admin:{} on the login page.",
    "Enter password: {}",
    "pass: {}",
    "Password (old): {}",
    "SMTP_PASS={}",
    "const dbPassword = '{}';",
    'let passphrase: string = "{}";',
    "password:\n  {}",
    "**Password:** {}",
    "The user's password, {}, was rejected.",
    "REDIS_PW={}",
)

TOKEN_PLACES = (
    "API_KEY={}",
    "export ACME_API_KEY={}",
    'api_key = "{}"',
    "api-key: {}",
    'apiKey: "{}",',
    '{{"api_key": "{}", "model": "x"}}',
    "X-Api-Key: {}",
    "Authorization: Bearer {}",
    "authorization: token {}",
    'headers = {{"Authorization": "Bearer {}"}}',
    "-H 'Authorization: Bearer {}'",
    '-H "X-Auth-Token: {}"',
    "https://api.test/v1/items?api_key={}&page=2",
    "https://api.test/cb?access_token={}",
    "wss://api.test/socket?token={}",
    "access_token={}",
    "refresh_token: {}",
    '"token": "{}"',
    "client_secret={}",
    "clientSecret: '{}'",
    "AWS_SECRET_ACCESS_KEY={}",
    "aws_secret_access_key = {}",
    "DJANGO_SECRET_KEY = '{}'",
    "SECRET_KEY: {}",
    "signing_secret: {}",
    "ENCRYPTION_KEY={}",
    "AccountKey={};EndpointSuffix=core.test",
    "Cookie: sessionid={}; theme=dark",
    "Set-Cookie: session={}; HttpOnly; Path=/",
    "session_token={}",
    "csrf_token={}",
    "x-amz-security-token: {}",
    "//registry.test/:_authToken={}",
    "docker login -u bob --password-stdin <<< {} # token",
    "The API key {} was rejected.",
    "The API key is {}.",
    "Invalid token: {}",
    "Incorrect API key provided: {}. You can find your key in the settings.",
    "I used the token `{}` for the second call.",
    "my access token ({}) has expired",
    "Authenticated with bearer token {} but got 403.",
    "The webhook secret, which is {}, did not match.",
    "set token {}",
    'client = Client(token="{}")',
    "Client(api_key='{}', timeout=3)",
    'token := "{}"',
    'os.Setenv("SERVICE_TOKEN", "{}")',
    "secrets:\n  api_token: {}\n",
    "<apiKey>{}</apiKey>",
    "npm config set _auth {}",
    "vault kv put secret/x token={}",
    "ENV SERVICE_TOKEN={}",
    "--token {}",
    "--api-key={}",
    "token = {}",
    "GITHUB_PAT={}",
    'curl "https://api.test/?key={}"',
    "Failed to refresh: the refresh token {} is no longer valid",
    "Key for the payment API: {} (secret!)",
)

CODE_PLACES = (
    "OTP: {}",
    "the verification code is {}",
    "pin={}",
    '"cvv": "{}"',
    "2FA code: {}",
    "Your security code is {}.",
)


# As people and programs write; the redactor found seven in ten when it first saw them.
AS_REPORTED = (
    "Deployment failed because vault returned secret value {p} which had been rotated.",
    "Tried SSH with user deploy and pw {p}; permission denied.",
    "I hardcoded the Stripe secret ({t}) in the test and it leaked to the log.",
    'The .env contained MAILGUN_API_KEY="{t}" and JWT_SIGNING_KEY={t}',
    "Login as root/{p} failed three times.",
    "kubectl create secret generic db --from-literal=password={p}",
    "aws configure set aws_secret_access_key {t}",
    "helm upgrade app --set auth.password={p}",
    'psql "host=db user=app password={p} dbname=x"',
    "PGPASSWORD={p} psql -h db",
    "sqlcmd -S db -U sa -P {p}",
    "ldapsearch -D cn=admin -w {p} -b dc=x",
    "wget --http-password={p} http://x",
    "ftp://bob:{p}@files.test/",
    "amqp://guest:{p}@rabbit:5672/",
    "Traceback: requests.exceptions.HTTPError: 401 for url: https://api.test/v1?apikey={t}",
    "OAuth callback was called with code={t}&state=abc",
    '{{"Authorization":"Bearer {t}","Accept":"*/*"}}',
    "auth_token => {t}",
    "X-Vault-Token: {t}",
    "PRIVATE-TOKEN: {t}",
    "Ocp-Apim-Subscription-Key: {t}",
    "x-goog-api-key: {t}",
    "DD_API_KEY={t} DD_SITE=datadoghq.eu",
    "The user told me his password was {p} and asked me to reset it",
    "Passwort: {p}",
    "mot de passe : {p}",
    "contraseña: {p}",
    "my PIN is {d}",
    "enter the OTP {d} now",
    "One-time password {d} was accepted",
    "secret key = {t}",
    "S3 secret: {t}",
    "the key {t} is invalid",
    'I used key "{t}" for the request',
    "API token leaked: {t}",
    "token[{t}]",
    "token '{t}' expired",
    "access key id and secret: {t}",
    '"secretAccessKey": "{t}"',
    'connectionString: "Server=x;User=y;Pwd={p};"',
    "export const SECRET = `{t}`;",
    "define('DB_PASSWORD', '{p}');",
    '$config["password"] = "{p}";',
    "password: !vault {p}",
    "    password={p},",
    'password="{p}"&user=x',
    "user:{p}@host",
    "(password {p})",
    "<Password>{p}</Password>",
    '<input type="password" value="{p}">',
    "password\\\\t{p}",
    '"password", "{p}"',
    "user=bob,password={p},host=x",
    "bob,{p},admin (username,password,role)",
    'credentials = ("bob", "{p}")',
    "basic_auth: bob:{p}",
    "login: bob password: {p}",
    "username: bob / password: {p}",
    "u: bob p: {p}",
    'Authorization header was "Token {t}"',
    "signed with HMAC key {t}",
    "client id abc, client secret {t}",
    "the encryption passphrase for the backup is {p}",
    "Session cookie: sid={t}",
    "set-cookie: auth={t}; Secure",
    "webhook url https://hooks.test/x?secret={t}",
    "git remote set-url origin https://oauth2:{t}@gitlab.test/x.git",
    "docker login -u bob -p {p} registry.test",
    "twine upload -u __token__ -p {t}",
    "echo {p} | sudo -S apt update",
    "openssl enc -k {p} -aes256",
    "gpg --passphrase {p} -d x",
    "7z x -p{p} a.7z",
    "mongosh --username a --password {p}",
    "snowsql -p {p}",
    "root password is now {p}",
    "changed the admin password from {p} to something else",
    "his password ({p}) was in the ticket",
    "I noticed that {p} was used as password for the staging DB",
)


# Commands, calls and what people tell: six in ten were found when the redactor first saw them.
AS_TOLD = (
    # secrets in prose / logs, new shapes
    "The agent pasted {t} into the header field and got a 403 back.",
    "Auth failed: the sk was {t}",
    'Response 401 {{"error":"invalid_client","client_id":"web","client_secret":"{t}"}}',
    "terraform output -raw db_master_password returned {p}",
    "Ansible: ansible_become_pass: {p}",
    "ansible-playbook site.yml -e ansible_password={p}",
    "env: {{'OPENAI_API_KEY': '{t}', 'HOME': '/root'}}",
    "os.environ.get('STRIPE_KEY', '{t}')",
    "Using default credentials admin/{p}",
    "Signed in as alice using {p}",
    "ERROR 1045 (28000): Access denied for user 'app'@'db' (using password: {p})",
    "smtp_login(user, '{p}') raised SMTPAuthenticationError",
    "imap.login('bob', '{p}')",
    "ftp.login(user='bob', passwd='{p}')",
    "paramiko: client.connect('build', username='ci', password='{p}')",
    "pyodbc.connect('DRIVER=x;SERVER=y;UID=sa;PWD={p}')",
    "DATABASE_URL=mysql+pymysql://app:{p}@db/shop",
    "sqlalchemy.exc.OperationalError: (psycopg2) connection to postgresql://app:{p}@db/shop failed",
    "proxy http://bob:{p}@proxy:3128 refused the connection",
    "HTTPS_PROXY=http://corp\\bob:{p}@proxy:8080",
    "The Jenkins token is {t}, generated on Monday",
    "Slack responded invalid_auth for token {t}",
    "I set GITHUB_TOKEN to {t} in the workflow",
    "Header: apikey {t}",
    "x-functions-key: {t}",
    "SharedAccessSignature sr=x&sig={t}&se=17",
    "https://acct.blob.core.windows.net/c?sv=2022&sig={t}",
    "https://bucket.s3.amazonaws.com/x?X-Amz-Signature={h}&X-Amz-Expires=60",
    "Authorization: Basic {b}",
    "Proxy-Authorization: Basic {b}",
    "Authorization: ApiKey {t}",
    "Authorization: AWS4-HMAC-SHA256 Credential=x, Signature={h}",
    'Authorization: Digest username="bob", response="{h}"',
    "The unlock code for the door is {d}",
    "Bob gave me the SMS code {d} and I typed it in",
    "Enter the 6-digit code: {d}",
    "backup codes: {d} {d}",
    "wifi password is {p}",
    "the wifi key ({p}) was wrong",
    'WPA2 passphrase "{p}"',
    "net use Z: \\\\srv\\share /user:bob {p}",
    "runas with password {p} failed",
    "New-Object PSCredential('bob', (ConvertTo-SecureString '{p}' -AsPlainText -Force))",
    '$env:API_KEY = "{t}"',
    "set API_KEY={t}&& node app.js",
    "setx TOKEN {t}",
    "heroku config:set SECRET_KEY_BASE={t}",
    "flyctl secrets set STRIPE={t}",
    "gh secret set DEPLOY --body {t}",
    "vault login {t}",
    "consul acl token {t} not found",
    "ngrok config add-authtoken {t}",
    "cargo login {t}",
    "npm set //registry.npmjs.org/:_authToken {t}",
    "pip install git+https://__token__:{t}@code.test/x.git",
    "docker run -e DB_PASS={p} -e X=1 app",
    "docker-compose: POSTGRES_PASSWORD: {p}",
    "keytool -storepass {p} -alias x",
    "keystorePassword={p}",
    "ssl.key.password={p}",
    'sasl.jaas.config=... required username="bob" password="{p}";',
    "spring.mail.password: {p}",
    '"passphrase": "{p}"',
    "cfg.set('auth', 'secret', '{t}')",
    "config.api.key = '{t}'",
    "api.secret={t}",
    "consumer_key={t}",
    "oauth_token={t}, oauth_token_secret=abc",
    "master key {t} was used to unseal",
    "unseal key 1: {t}",
    "recovery phrase: {s}",
    'seed phrase was "{s}"',
    "license key {l}",
    "JSESSIONID={h}",
    "deploy --key {h} --env prod",
    "upload --auth={h} build.zip was refused",
    'subprocess.run(["push", "--key", "{h}"])',
    "PHPSESSID={h}; path=/",
    "_ga=GA1.2; auth_session={t}",
    "jwt={t}",
    "Invalid signature for token: {t}.",
    "assertion: got token {t} want empty",
    "print(password) printed {p}",
    "the login form was filled with bob and {p}",
    "typed {p} into the password field",
    "fill('#password', '{p}')",
    "page.type('input[name=password]', '{p}')",
    "driver.find_element(By.ID, 'pass').send_keys('{p}')",
    "sendline('{p}') after the Password: prompt",
    "echo '{p}' | passwd --stdin bob",
    "htpasswd -b file bob {p}",
    "useradd -p {p} bob",
    "chpasswd <<< 'bob:{p}'",
    "GRANT ALL ON x TO 'bob' IDENTIFIED BY '{p}'",
    "ALTER ROLE app WITH LOGIN PASSWORD '{p}'",
    "requirepass {p}",
    "AUTH {p}",
    "redis-cli -a {p} ping",
    "rabbitmqctl add_user bob {p}",
    "influx -username bob -password {p}",
    "mosquitto_pub -u bob -P {p} -t x",
    "rclone config create x sftp pass {p}",
    "restic: RESTIC_PASSWORD {p}",
    "ssh-keygen -N '{p}' -f k",
    "smbclient //srv/x -U bob%{p}",
    "rdesktop -u bob -p {p} host",
    "az login -u bob -p {p}",
    "az login --service-principal -u id -p {t} --tenant x",
    "gcloud auth activate --key {t}",
    "tool call: login({{'user': 'bob', 'pw': '{p}'}})",
    "called login with {{'username': 'bob', 'password': '{p}'}}",
    'args: ["bob", "{p}"] for tool login',
    "http_get(headers={{'X-Token': '{t}'}}) gave 403",
    "The user wrote: my password is {p} can you log me in?",
    "user said: use {p} to sign in",
    "pasword: {p}",
    "passwrod={p}",
    "https://api.telegram.org/bot{g}/sendMessage",
    "https://shop.test/invite/{w}?email=bob",
    "magic link: https://shop.test/login/{w}",
    "SMS: {d} is your Shop login code",
    "fernet = Fernet(b'{t}')",
    "hmac.new(b'{h}', body, 'sha256')",
    "approle: role_id=x secret_id={t}",
    "keytool -importkeystore -srcstorepass {p} -alias x",
    "code_verifier={w}&grant_type=authorization_code",
    "index = algoliasearch('APPID', '{h}')",
    "GET /data/2.5/weather?q=x&appid={h}",
    "routing_key: {h}",
    "mc alias set s3 http://minio:9000 admin {p}",
    'export BW_SESSION="{w}=="',
    "https://conda.test/t/{w}/main",
    "sqlplus scott/{w}@db",
    "spark.conf.set('fs.azure.account.key.x.blob.core.windows.net', '{w}==')",
    "the key pair {y} was printed",
    'dsn="app:{p}@tcp(db:3306)/shop"',
    "neo4j.auth = basic('neo4j', '{p}')",
    "client.connect(host, 22, 'bob', '{p}')",
    "snmp-server community {t} RO",
    "username admin password 0 {p}",
    "line vty 0 4\n password 7 {c}",
    "Administrator:500:aad3b435b51404eeaad3b435b51404ee:{n}:::",
    "the NTLM hash {n} was dumped",
    "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 1\n{k}\nPrivate-MAC: 00",
    "the key MII" + "EvQIBADANBgkqhkiG9w0BAQEFAASC{k} was in the log",
    "POST https://api.vercel.com/v1/" + "integrations/deploy/prj_x/{w}",
    "Authorization: GenieKey {t}",
    "kubeconfig: client-key-data: {w}",
    "Kennwort: {p}",
    "Das Passwort lautet {p}.",
    "le mot de passe est {p}",
    "la contraseña es {p}",
    "senha: {p}",
    "пароль: {p}",
    "密码: {p}",
    "パスワード: {p}",
)
WORDS = (
    "abandon", "ability", "orbit", "canyon", "velvet", "ladder", "ocean", "tiger", "puzzle", "window",
    "garden", "elbow",
)  # fmt: skip


def told_rows(seed=13):
    """Return rows as commands, calls and people have them, each with what is secret in it."""
    make = Maker(seed)
    rows = []
    for place in AS_TOLD:
        password = make.password()
        values = {"p": password, "t": make.token(), "d": make.of(DIGITS, 6), "h": make.of(HEX, 64)}
        values["w"] = make.of(MIXED, 40)
        values["n"], values["c"] = make.of(HEX, 32), make.of(DIGITS + "ABCDEF", 20)
        values["k"] = make.of(MIXED + "+/", 120)
        values["y"] = make.of(MIXED, 88)
        values["g"] = make.of("123456789", 10) + ":A" + "A" + make.of(WEB, 33)
        values["l"] = "-".join(make.of(UPPER + DIGITS, 5) for _ in range(5))
        values["s"] = " ".join(make.dice.sample(WORDS, 12))
        values["b"] = base64.b64encode(f"bob:{password}".encode()).decode()
        secret = next(value for key, value in values.items() if "{" + key + "}" in place)
        rows.append(Row(place, place.format(**values), secret))
    return rows


def reported_rows(seed=11):
    """Return rows as failure reports have them; each holds a password, a token or a code."""
    make = Maker(seed)
    rows = []
    for place in AS_REPORTED:
        values = {"p": make.password(), "t": make.token(), "d": make.of(DIGITS, 6)}
        secret = next(value for key, value in values.items() if "{" + key + "}" in place)
        rows.append(Row(place, place.format(**values), secret))
    return rows


def secret_rows(seed=7):
    """Return rows over all shapes, syntaxes and kinds of values."""
    make = Maker(seed)
    rows = [
        Row(name, IN_TEXT[number % len(IN_TEXT)].format(token), token)
        for number, (name, token) in enumerate(provider_tokens(make))
    ]
    for place in PASSWORD_PLACES:
        for _ in range(2):
            value = make.password()
            rows.append(Row(place, place.format(value), value))
    for place in TOKEN_PLACES:
        for _ in range(2):
            value = make.token()
            rows.append(Row(place, place.format(value), value))
    for place in CODE_PLACES:
        value = make.of(DIGITS, 6)
        rows.append(Row(place, place.format(value), value))
    return [*rows, *private_keys(make)]


def private_keys(make):
    """Return private keys: whole, cut off, on one line, quoted in a mail."""
    rows = []
    for kind in ("RSA ", "EC ", "", "OPENSSH ", "ENCRYPTED "):
        lines = [make.of(MIXED + "+/", 64) for _ in range(4)]
        begin, end = f"-----BEGIN {kind}PRIVATE " + "KEY-----", f"-----END {kind}PRIVATE " + "KEY-----"
        texts = (
            "\n".join([begin, *lines, end]),
            "\\n".join([begin, *lines, end]),
            "\n".join(f"> {line}" for line in [begin, *lines, end]),
            "\n".join([begin, *lines]),
        )
        rows += [Row(f"{kind}private key", f"key:\n{text}\nfollows", lines[2]) for text in texts]
    return rows


# Lines of persons and machines, to develop against; those in `redact_held_out` are to measure with.
FIRST = """
    Ada Ibrahim Jürgen Noémie Tomasz Priya Kwame Beatriz Søren Ingrid Mateusz Chioma Yuki Lucía
    Oisín Zeynep Radovan
""".split()  # noqa: SIM905 (a list of words is read more easily)
LAST = """
    Lovelace Okonkwo Müller Lefèvre Wiśniewski Ramanathan Asante Carvalho Kjeldsen Håkansson Tanaka
    Ferreira O'Brien Yilmaz Petrović Whitcombe Adeyemi Novotná Brandt Castellano
""".split()  # noqa: SIM905 (a list of words is read more easily)
OWNED = {
    "names in greetings": (
        "Dear «{f}», your claim was settled.",
        "Hi «{f} {l}»:\nplease find the report below",
        "hello «{f}»,",
        "Hey «{f}»! quick one",
        "Good afternoon «{f}».",
        "Thanks,\n«{f}»",
        "Thank you!\n\n«{f} {l}»\nDevOps",
        "Best regards,\n«{f} {l}»",
        "Sincerely,\nDr. «{f} {l}»",
        "Hallo «{f}», anbei die Rechnung.",
        "Liebe «{f}»,\nbis morgen",
        "Cher «{f}»,",
        "Estimada «{f}», adjunto el informe.",
        "Mit freundlichen Grüßen\n«{f} {l}»",
        "Cordialement,\n«{f} {l}»",
        "reply = 'Dear «{f}»,\\nthank you for waiting'",
        "Dear Dr «{l}»,",
        "Welcome back, «{f}»!",
        "> Hi «{f}»,",
        'It wrote "Hi «{f}»," to the wrong person.',
        "Dear Mr. and Mrs. «{l}»,",
        "Hi «{f}» and team,",
        "Regards,\n«{f}»",
    ),
    "names in reports": (
        "Approved by: «{f} {l}»",
        "The call was handled by «{f} {l}».",
        "«{f} {l}» called twice about the refund.",
        "Refund requested by «{f} {l}» on behalf of «{f} {l}»",
        "customer: «{f} {l}»",
        "Name: «{l}, {f}»",
        "reviewer=«{f} {l}»",
        '"assignee": "«{f} {l}»"',
        "Witness «{f} {l}» said nothing.",
        "He forwarded it to «{f} {l}» in accounting.",
        "The letter from «{f} {l}» was lost.",
        "An email for «{f} {l}» bounced.",
        "user «{f} {l}» (id 7) is locked",
        "From: «{f} {l}» <x@example.com>",
        "Co-authored-by: «{f} {l}» <x@example.com>",
        "Attendees: «{f} {l}», «{f} {l}»",
        "Please contact «{f} {l}» for details.",
        "The nurse «{f} {l}» noted a fever.",
        "it greeted «{f} {l}» by the wrong name",
        "Next of kin: «{f} {l}»",
        "Booking for «{f} {l}», two nights",
        "My colleague «{f} {l}» disagrees.",
        "- [ ] ask «{f} {l}»",
        "I am «{f} {l}» and I want to cancel.",
        "«{f} {l}» was charged twice.",
        "Ship to: «{f} {l}»",
        "The defendant, «{f} {l}», left.",
        "sent it to «{f} {l}» by mistake",
        "| «{f} {l}» | 3 | open |",
        "Order of «{f} {l}» is late",
        "complaint by «{f} {l}»",
        "Expected: Smith. Got: «{f} {l}»",
        "The summary mentions «{f} {l}», who is not part of the case.",
        "Escalated to «Priya».",
        "«Kwame» reported that it crashed",
        "I asked «Ingrid», who did not know",
        "my colleague «Tomasz» restarted it",
        "«Beatriz»'s account was closed",
        "a note from «Chioma»",
        "I am «{f} {l}», a customer",
        "What's the name? «{f} {l}»",
        "«{f} J {l}» signed it",
        "Assigned by «Mateusz»,",
    ),
    "domain users": (
        "user «{D}\\{u}» was locked out",
        "Logon failure for «{D}\\{u}»",
        "net use \\\\x\\y /user:«{D}\\{u}»",
        "«{D}\\{u}» logged on",
        "The job is owned by «{Dl}\\{u}»",
        "Impersonating '«{D}\\{u}»'",
        "Cannot open database. Login failed for user '«{D}\\{u}»'.",
        "Security ID: «{D}\\{u}»",
        '"user": "«{D}\\\\{u}»"',
        "Account Name:\t\t«{u}»",
        "[«{D}»\\«{u}»]",
        "permissions of «{D}\\{u}» denied",
        "Run as: «{D}\\{u}»",
        "Username: «{D}\\{u}»",
        "kinit: «{u}@{D}.COM» unknown",
        "session for «{D}\\{u}» ended",
        "«{D}\\{u}» - access denied",
        "Owner: «{D}\\{u}» (Full)",
        "for account «{D}\\{u}», error 5",
        "net localgroup admins «{D}\\{u}» /add",
        "from «{D}\\{u}» to «{D}\\{u}»",
        "Account Domain:\t\t«{D}»",
        '"«{D}\\{u}»" is unknown',
    ),
    "directory entries": (
        "CN=«{f} {l}»,CN=Users,DC=acme,DC=com",
        "cn=«{f} {l}»,ou=people,dc=acme",
        "issuer: O=Acme, CN=«{f} {l}»",
        "uid=«{u}»,cn=users,cn=accounts,dc=x",
        "DN: UID=«{u}»,OU=Ops,O=Acme",
        "(sAMAccountName=«{u}»)",
        "search filter (cn=«{f} {l}»)",
        "CN = «{f} {l}»\nO = Acme",
        "(uid=«{u}»)",
        "managedBy: CN=«{l}\\, {f}»,OU=IT,DC=acme",
        "/C=DE/O=Acme/CN=«{f} {l}»",
        "(mailNickname=«{u}»)",
        "memberUid: «{u}»",
        "(&(objectCategory=person)(userPrincipalName=«{u}»))",
        "bind DN was uid=«{u}»,dc=acme",
        "entry cn=«{u}»,ou=staff,o=acme has no mail",
        "the certificate CN=«{f} {l}» was revoked yesterday",
        "CN=«{f} {l}» (expired)",
        "subject: CN=«{f} {l}»; issuer: CN=Root CA",
        "peer certificate: CN=«{f} {l}» does not match",
        "bound as uid=«{u}» to ldap://x",
        "LDAP user uid=«{u}» is disabled",
        "ldapsearch -b dc=x '(uid=«{u}»)' mail",
    ),
    "record numbers": (
        "MRN: «{d8}»",
        "patient number «{d6}»",
        "Medical record no. «{d7}»",
        "policy «{U2}{d8}»",
        "Policy No: «{U3}-{d6}»",
        "claim number «{d9}»",
        "member #«{d8}»",
        "employee no. «{d5}»",
        "staff ID «{U}{d5}»",
        "account no «{d8}»",
        "Customer ID «{d6}»",
        "case no. «{d2}-{d5}»",
        "file number «{d4}/{d4}»",
        "student number: «{d7}»",
        "licence number «{U3}{d6}»",
        "NHS number «{d3} {d3} {d4}»",
        "Versicherungsnummer «{d2} {d6} {U} {d3}»",
        "badge «{d6}»",
        "Aktenzeichen «{d2}/{d4}»",
        "personnel number is «{d6}»",
        '{{"patientId": "«{d7}»"}}',
        "caseNumber=«{d8}»",
        "insurance no «{U}{d9}»",
        "loyalty card «{d10}»",
        "permit «{U2}{d7}»",
        "tax number «{d2}/{d3}/{d5}»",
        "Mitgliedsnummer «{d6}»",
    ),
    "shell prompts": (
        "«{u}»@«{h}»:/var/log$ cat app.log",
        "root@«{h}»:~# reboot",
        "[«{u}»@«{h}» ~]$ id",
        "[root@«{h}» app]# yum update",
        "«{u}»@«{h}» % ls",
        "«{u}»@«{h}»:~/shop (main)$ git pull",
        "«{u}»@«{h}»> show version",
        "(base) «{u}»@«{h}»:~$ conda list",
        "«{u}»@«{h}»:~$",
        "➜ «{u}»@«{h}» ~ ls",
        "pi@«{h}»:~ $ top",
        "«{h}»# show running-config",
        "«{u}»@«{h}» MINGW64 ~/src (main)\n$ git log",
        "root@«{h}»:/app# env",
        "«{u}»@«{h}»:/tmp>ls",
        "«{u}»@«{h}»:~ > ls",
        "«{u}»@«{h}»:/$ ",
        "[«{u}»@«{h}» (prod) ~]$ ls",
        "bash-5.1$ ssh «{u}»@«{h}»",
        "«{u}»@«{h}» /etc $ cat passwd",
    ),
    "syslog hosts": (
        "Mar  4 09:15:22 «{h}» sudo: pam_unix",
        "Jul 31 10:00:00 «{h}» nginx[12]: worker died",
        "2026-05-06T07:08:09Z «{h}» kubelet[1]: failed",
        "<165>1 2026-08-24T05:14:15.000003-07:00 «{h}» myproc 8710 - - x",
        "Sep 15 2026 12:12:12 «{h}» : %ASA-6-302013: Built",
        "May  1 01:02:03 «{h}» rsyslogd: start",
        "2026-01-02T03:04:05.123456+00:00 «{h}» sshd[44]: Accepted",
        "<86>Nov  2 10:10:10 «{h}» su[3]: ok",
        "Jun 14 15:16:01 «{h}» logrotate: ALERT",
        "2026-01-02 03:04:05 «{h}» cron[1]: job",
        "Nov 11 11:11:11 «{h}».acme.com postfix/smtpd[2]: connect",
        "hostname=«{h}» msg=x",
        "Jun 19 04:09:11 «{h}» syslogd 1.4.1: restart.",
        "Jul  7 08:06:15 «{h}»  -- root[2421]: LOGIN",
        "Jul  1 09:29:02 «{h}» sandboxd[129] ([31211]): deny",
    ),
    "pods and registries": (
        "pod «{pod}» was OOMKilled",
        "pods/«{pod}»",
        "kubectl describe pod «{pod}» -n shop",
        "kubectl delete pod «{pod}»",
        "Readiness probe failed: «{pod}»",
        "stern «{pod}»",
        '{{"pod": "«{pod}»"}}',
        "pod: «{pod}»",
        "POD_NAME=«{pod}»",
        "docker pull «{reg}»/app:1",
        "docker login «{reg}»",
        "docker tag app «{reg}»/app",
        "pushed to «{reg}»/shop/web:2.1",
        'image "«{reg}»/x/y" not found',
        "FROM «{reg}»/x:1 AS build",
        "ErrImagePull: «{reg}»/api:dev",
        "failed to pull «{reg}»/api@sha256:ab",
        "repository: «{reg}»/charts/x",
        "skopeo copy docker://«{reg}»/a:1 dir:x",
        "manifest for «{reg}»/a:9 not found",
        "statefulset pod kafka-«{n}» is pending",
        'Get "https://«{reg}»/v2/": x509',
        "image=«{reg}»/a/b:c",
        "container app in pod «{pod}» is waiting",
    ),
    "client addresses": (
        "X-Forwarded-For: «{ip}»",
        '"x-forwarded-for": "«{ip}», 10.0.0.1"',
        "x-real-ip: «{ip6}»",
        'Forwarded: for="[{ip6}]";by=x',
        "clientIp=«{ip}»",
        "client «{ip}» banned",
        "login from «{ip}»",
        "remote_addr=«{ip}»",
        '«{ip}» - bob [01/Jan/2026:00:00:01 +0000] "GET / HTTP/2" 200 1',
        "source ip «{ip}»",
        "Failed login attempt from IP address «{ip}»",
        "HTTP_X_FORWARDED_FOR=«{ip}»",
        "[client «{ip}»:53412] AH01630: denied",
        "peer «{ip}» reset",
        "rhost=«{ip}» user=root",
        "user agent x, ip «{ip}», time 3",
        '{{"ipAddress": "«{ip}»"}}',
        "request from «{ip}»:443",
        "X-Forwarded-For: 203.0.113.«{d2}»",
        "Connection closed by «{ip}» [preauth]",
        "reverse mapping failed for x [«{ip}»]",
        "Accepted password for bob from «{ip}» port 22",
        "rhost=«dsl-{d3}.telco.net» user=root",
    ),
    "account ids in addresses": (
        "/api/accounts/«{d7}»/close",
        "https://x.test/customers/«{uuid}»",
        "https://x.test/v1/users/usr_«{m14}»",
        "GET /members/«{d6}»?x=1",
        "?customerId=«{d7}»",
        "&account_id=«{d9}»",
        "https://x.test/clients/«{d8}».json",
        "https://x.test/tenant/«{uuid}»/settings",
        "PATCH /subscriptions/sub_«{m14}»",
        "/employees/«{d6}»",
        "https://dashboard.stripe.com/acct_«{m14}»/payments",
        "https://x.test/u/«{d8}»",
        "/patients/«{uuid}»/notes",
        "https://x.test/orgs/«{hex24}»/billing",
        "https://ads.test/?uid=«{d10}»",
        "/customer/«{d6}»/address",
        "https://x.test/profile/«{d9}»",
        "https://«{d12}».dkr.ecr.us-east-1.amazonaws.com/a",
        "DELETE /user/«{d8}»",
        "https://x.test/account/«{d8}»#top",
        "https://x.test/students/«{d7}»/grades",
        "url: /policies/«{d8}»/cancel",
    ),
    "keys as second arguments": (
        "Client('prod', '«{key}»')",
        'api = Api("x", "«{hex32}»")',
        "init(app, '«{key}»')",
        "connect('wss://x', \"«{key}»\")",
        "conn.auth('user', '«{pw}»')",
        'new Service("a", "b", "«{key}»")',
        "sdk.configure('eu', key='«{hex32}»')",
        'sign(payload, "«{pw}»")',
        "Session('svc', '«{hex40}»')",
        "Sender(\"x\", '«{hex20}»')",
        'jwt.encode(claims, "«{pw}»", algorithm="HS256")',
        'decrypt(blob, "«{hex32}»")',
        "register('shop', '«{key}»', 3)",
        "client.login('bob', '«{pw}»')",
        "HMAC(msg, '«{hex64}»')",
        "Credentials('id', '«{key}»')",
        "openai.setup('org', '«{key}»')",
        "createHmac('sha256', '«{key}»')",
        'createHmac("sha256", "«{hex32}»")',
        "basic_auth('svc', '«{pw}»')",
        "req.setRequestHeader('X-Key', '«{key}»')",
        "Gateway(id, '«{hex32}»').charge()",
        "localStorage.setItem('token', '«{key}»')",
        "getClient('eu', '«{key}»')",
        "mqtt.username_pw_set('dev', '«{pw}»')",
        "requests.get(url, auth=('bob', '«{pw}»'))",
        "createCipheriv('aes-256-cbc', '«{hex32}»', iv)",
    ),
    "other personal data": (
        "card «{card}» was refused",
        "mail «{u}@firm-mail.net»",
        "phone «0{d3}/{d7}»",
        "call «+1 212-555-{d4}»",
        "dob «12/0{n}/1980»",
        "«{iban}»",
        "SSN «{ssn}»",
        "Tel: «(0{d2}) {d4} {d4}»",
        "mobile 0«{d2} {d3} {d4}»",
        "fax «{d3}-{d3}-{d4}»",
        "ring me on «07{d3} {d6}»",
        "office «{d3}.{d3}.{d4}»",
    ),
    "hosts and resources": (
        "ssh «{h}» -p 22",
        "ping «{h}».acme.net",
        "host «{h}» is down",
        "connect to «{h}»:5432 failed",
        "http://«{h}»:8080/health",
        "the node «{h}» was drained",
        "nfs server «{h}» not responding",
        "rsync x «{h}»:/backup",
        "server=«{h}»",
        'could not translate host name "«{h}»" to address',
        "Connection refused: «{h}»/10.1.2.3:9092",
        "getaddrinfo ENOTFOUND «{h}»",
        "upstream «{h}»:9000 timed out",
        "dial tcp: lookup «{h}» on 10.0.0.2:53: no such host",
        "«nas{n}»:/vol1 on /mnt type nfs",
        "open \\\\«{h}»\\backup failed",
        "mount.nfs «{h}»:/export failed",
        "/home/«{u}»/x.py",
        "s3://«{D2}»/x",
        "telnet «{h}» 25",
        "[«{h}»] ok: unreachable",
        "«{h}» | UNREACHABLE! => x",
        "Host «{h}» not found",
        "host «{h}.eu.acme.com»",
        "curl https://«{h}».acme.io/x",
        "HOSTNAME=«{h}»",
        "cannot reach «{h}»",
        "server «{h}» is down",
        "on «{h}» port 22",
        "nodes «{h}», «{h}»",
    ),
}


def marked_lines(templates_of, first, last, seed):
    """Return lines of templates, each with values of its own; what stands in «» is to be withheld."""
    make, lines = Maker(seed), []
    for kind, templates in templates_of.items():
        for template in templates:
            marked = template.format(**values(make, make.dice.choice(first), make.dice.choice(last)))
            text = marked.replace("«", "").replace("»", "")
            lines.append(Line(kind, template, text, tuple(re.findall("«(.*?)»", marked))))
    return lines


def owned_lines(seed=17):
    """Return lines of persons and machines, to develop against."""
    return marked_lines(OWNED, FIRST, LAST, seed)


def values(make, first, last):
    """Return values of every kind, by the names that the templates have for them."""
    pick, of = make.dice.choice, make.of
    names = {"f": first, "l": last}
    login = f"{first[0]}{last}".lower()
    login = "".join(char for char in login if char.isascii() and char.isalnum()) + pick(
        ["", str(make.dice.randrange(2, 99))]
    )
    org = pick(["NORTHWIND", "HALDEN", "KESTREL", "OSTMARK", "PELICAN", "TRIDENT", "LUMEN", "VELA"])
    role = pick(["web", "db", "mq", "cache", "build", "edge", "auth", "batch", "ldap", "mon"])
    host = pick(
        [
            f"{role}-prod-0{make.dice.randrange(1, 9)}",
            f"{role}{make.dice.randrange(1, 40):02}",
            f"{org.lower()}-{role}-{make.dice.randrange(1, 9)}",
            f"srv-{of(LOWER, 3)}{make.dice.randrange(10, 99)}",
        ]
    )
    pod_end = "".join(pick("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))
    pod_hash = "".join(pick("bcdf456789") for _ in range(pick([9, 10])))
    pod = pick([f"{role}-api-{pod_hash}-{pod_end}", f"{org.lower()}-{role}-{pod_hash}-{pod_end}"])
    registry = pick(
        [
            f"registry.{org.lower()}.io",
            f"{org.lower()}.azurecr.io",
            f"{of('123456789', 12)}.dkr.ecr.eu-west-1.amazonaws.com",
            f"harbor.{org.lower()}.net",
            f"{org.lower()}.jfrog.io",
            f"eu.gcr.io/{org.lower()}-{make.dice.randrange(100, 999)}",
            f"registry-{role}:5000",
        ]
    )
    ip = ".".join(str(make.dice.randrange(11, 99)) for _ in range(3)) + f".{make.dice.randrange(100, 250)}"
    digits = {f"d{size}": of("123456789", 1) + of(DIGITS, size - 1) for size in range(2, 13)}
    uuid = "-".join(of(HEX, size) for size in (8, 4, 4, 4, 12))
    return {
        **names,
        **digits,
        "u": login,
        "D": org,
        "Dl": org.lower(),
        "D2": f"{org.lower()}-{role}",
        "h": host,
        "pod": pod,
        "reg": registry,
        "ip": ip,
        "ip6": f"2a02:{of(HEX, 4)}:{of(HEX, 4)}::{of(HEX, 3)}",
        "n": str(make.dice.randrange(1, 9)),
        "U": of(UPPER, 1),
        "U2": of(UPPER, 2),
        "U3": of(UPPER, 3),
        "m14": of(MIXED, 14),
        "uuid": uuid,
        "hex20": of(HEX, 20),
        "hex20b": of(HEX, 20),
        "hex24": of(HEX, 24),
        "hex32": of(HEX, 32),
        "hex40": of(HEX, 40),
        "hex64": of(HEX, 64),
        "key": pick([of(MIXED, 24), of(MIXED, 32), of(MIXED, 40)]),
        "pw": make.password(),
        "card": card(make),
        "iban": iban(make),
        "ssn": f"{of('12345678', 3)}-{of('123456789', 2)}-{of('123456789', 4)}",
    }
