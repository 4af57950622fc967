"""Texts with secrets, put together when a test runs: no whole secret stands in any file."""

import base64
import random
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
