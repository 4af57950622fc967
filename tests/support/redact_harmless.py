"""Texts in which nothing is to be withheld."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SHORTEST = 80

LINES = """
The agent pasted the stack trace into the token field description.
I signed in as a guest and tried the search again.
login(user, callback) was never called
The user typed the order number into the login page by mistake.
fill('#email', 'user@example.com')
Use OAuth2 to sign in.
run `gh auth login` first, then retry
docker run -u 1000 -p 8080:80 web
psql -U app -p 5432 fails
mkdir -p build/x86_64
cargo login is not needed for a dry run
assert page.get_by_label("Password").is_visible()
The recovery steps were: stop the loop, read the log, find the first error, mend it, run again and see.
commit 3b1f0a9c7d2e4f5a6b7c8d9e0f1a2b3c4d5e6f70 broke the build
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
integrity sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==
msg_01XFDUDYJgAACzvnptvVoYEL stopped with end_turn
resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b was incomplete
thread_abc123XYZ789defGHI456jkl had no messages
asst_AbCdEfGhIjKlMnOpQrStUvWx was deleted
cus_NffrFeUfNV2Hib has no default payment method
pi_3MtwBwLkdIwHu7ix28a3tqPa requires_action
evt_1NG8Du2eZvKYlo2CUI79vXWy was retried three times
build chunk-vendors.8f14e45fceea167a.js is 512 kB
index-BQ4x9ZkL.js loaded in 31 ms
styles__Button-sc-1x2y3z4-0 is not defined
docker.io/library/python@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
go: github.com/stretchr/testify v1.9.0 h1:HtqpIVDClZ4nwg75+f6Lvsy/wHu+3BoSGCbBAcpTsTg=
"integrity": "sha512-3DbS0bKQXYzv1Nl5xQm8t9FeqXjlUwfRQ+b5xXUiaTVTQWbRWvPCsKm9A9YmDQmzmGGzJbYRkqk1Oxqkq8ZQ=="
_ZN4core9panicking5panic17h0123456789abcdefE at lib.rs:12
_ZNSt6vectorIiSaIiEE9push_backEOi
test_getElementsByTagName3And4ReturnsNothing FAILED
test_that_getElementsByClassNameNS2AndTagName3Filter FAILED
the primary key is user_id
KeyError: 'key_data'
session data: 12 rows were read
token data types are checked first
cookie data was too large (5 kB)
password data is not kept
client key data of 3 bytes is too short
secret id was not given
the secret_id is the second of two parts
SecretId='prod/database/main' was not found
routing_key: orders.created.eu
routing_key='payment.failed' exchange='events'
appid=com.example.app is not signed
?appid=my-app-1&lang=en
code verifier was missing from the request
Authorization: Bearer <token>
authorization: denied for group editors
Authorization: Digest username="x", realm="y"
Authorization header must start with Bearer
GET /api/v1/verify/email-address-of-the-user 404
/docs/login/how-to-sign-in-with-single-sign-on
https://example.com/share/2024-quarterly-report-final-version
/auth/callback returned 302
/reset/password-form-is-not-shown-on-mobile
Fernet key must be 32 url-safe base64-encoded bytes
Fernet(key) raised ValueError
hmac.new(key, message, "sha256") differs
aes.new(key, AES.MODE_GCM)
Client("https://example.com", "3.1.4")
search("needle", "haystack of words")
client("s3", "eu-west-1")
12345 is your order number
404 is your status code in the log
500 is the code of the error
3 is your best score
It tried gpt-4o and then claude-3-5-sonnet
tried again after 30s with backoff=2
commit 9fceb02d0ae598e95dc970b74767f19372d61af8 (HEAD -> main, tag: v2.1.0)
uuid 7f9c24e8-3b12-4fef-91e0-5f1d2c3b4a59 is no row of users
ETag: "33a64df551425fcc55e4d42a148795d9f25f89d4"
nix store path /nix/store/4xw8n979xpivdc46a9ndcvyhwgif00hz-hello-2.12.1 is missing
pip install torch==2.4.0+cu121 --find-links https://example.com/whl/cu121
k8s pods were evicted
jobs-run-20240311T101500Z-abcdef12 took 3 h
layer2_block3_conv1_weight has shape (64, 3, 3, 3)
utf8mb4_0900_ai_ci is not a known collation
CVE-2024-3094 affects xz 5.6.0
snmpwalk -v2c -c public switch1 failed
enable secret rotation in 5 steps
the user was told password 7 times
username admin password reset 3 times
connect(host, port, "utf-8", "strict") raised
auth = build("a", some_name)
MIIDXTCCAkWgAwIBAgIJAKL0UG+mRkSvMA0GCSqGSIb3DQEBCwUAMEUxCzAJBgNV is a certificate
nt hash table of the file system
user_session was closed after db_session.commit()
random_seed=42 and hash_salt=none
sqlplus is not installed
https://example.com/t/how-to-write-a-good-bug-report/1234
see root@tcp(port) in the log
error TS2345: Argument of type 'string' is not assignable to parameter of type 'number'
llama-3.1-8b-instruct-Q4_K_M.gguf is 4.9 GB
Qwen2.5-Coder-0.5B-Instruct-GGUF was loaded
text-embedding-3-small has 1536 dimensions
v1.public.api is deprecated
sl.status was None
pat-eu1 is a region
chatcmpl-9vXkQ2bYw8LmN3pRt5uVx7zA finished with length
request id req_011CSHoEeqs5C35K2UUqR7Fy
call_9fJk2LmN3pRt5uVx7zA8bYw was refused
toolu_01A09q90qw90lq917835lq9 answered: ok
trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span_id=00f067aa0ba902b7
AttributeError: 'NoneType' object has no attribute 'get_authorization_code'
error code 4031, exit code 137, status code 502
The backup codes page returned 404.
The door sensor entry code path raised KeyError: 'door_code'
Enter the 5-digit zip code
Product key figures for 2024 were missing
The function key F5 did nothing
network key exchange failed: no shared cipher
The session cookie was missing.
the user session ended after 30 minutes
print(token) printed None
password returned null
The password contains invalid characters
the password shows as dots
the secret returned by the vault was empty
der Test ist rot
esta es la prueba
token est expired
AbstractSingletonProxyFactoryBeanGenerator2 was not found
test_that_HTTP2Connection1IsClosedBeforeTLS13Handshake failed
getElementsByClassNameNS2AndTagName3Filter is not a function
x86_64-unknown-linux-gnu
TypeError: Cannot read properties of undefined (reading 'token')
wandb login failed: no network
vault token lookup gave 403
config set pass-through mode
git config user.name CI
update the pass rate to 0.95
create a pass over the list
AUTH LOGIN is not supported
AUTH command unknown
the seed was 42
random seed: 1234567
wallet balance was wrong in test 7
filled in with zeros and ones
signed in with Google and continued
entered 12345 as the order number in the form
sent 3 requests for the token endpoint
put retry-after-30 into the login queue
Ran 200 tests in 12.3s: 198 passed, 2 failed
2026-03-01T10:15:00Z ERROR worker-3 timeout after 30s
ValueError: invalid literal for int() with base 10: 'two'
pip 24.0 from /usr/lib/python3/dist-packages
version 1.2.3-rc.4+build.567
The token limit of 4096 was exceeded, so I cut the prompt.
max_tokens=4096, temperature=0.7
{"prompt_tokens": 812, "completion_tokens": 130, "total_tokens": 942}
usage: 1,204 tokens in 3 requests
token_count = len(tokens)
for token in tokens: print(token)
def tokenize(text: str) -> list[str]:
The tokenizer splits on spaces; the next token is a comma.
ParserError: Unexpected token '}' at line 14
SyntaxError: unexpected token: identifier
expected token COLON, got NEWLINE
eos_token_id: 50256
"token_type": "bearer"
grant_type=client_credentials
The password field was empty, and the form was not sent.
password is required
Password must be at least 12 characters and contain a digit
"password": "string"
password: str
password: <your password>
password=$DB_PASSWORD
password=${DB_PASSWORD}
PASSWORD={{ vault_password }}
"api_key": "YOUR_API_KEY"
api_key = os.environ["API_KEY"]
api_key=settings.api_key
const apiKey = process.env.API_KEY;
token = get_token(user)
token = request.headers.get("Authorization")
self.token = token
login(user=name, password=password)
if password != confirm_password: raise ValueError
secret = hmac.compare_digest(expected, given)
headers = {"Authorization": f"Bearer {token}"}
Authorization: Bearer <token>
Authorization: Bearer $TOKEN
curl -H "Authorization: Bearer $TOKEN" https://api.example.com/v1/me
curl -u "$USER:$PASSWORD" https://example.com
docker run -u 1000:1000 image
postgresql://localhost:5432/shop
postgresql://user:password@localhost/db
redis://localhost:6379/0
http://localhost:8080/path@2x.png
The API key was missing, so the call failed with 401.
I should have checked that the API key was set before the call.
The access token had expired; refreshing it first would have helped.
Authentication failed due to expired credentials.
Next time I will ask for the credentials before I start.
The secret to a good summary is to leave things out.
It is no secret that tests help.
the private key file could not be opened
The key is to read the error message first.
Key: value pairs are separated by commas
primary_key=True, foreign_key="users.id"
key=lambda item: item.score
sorted(rows, key=len)
keyboard shortcuts: ctrl-k
cache_key = f"{name}:{version}"
KeyError: 'password'
KeyError: 'access_token'
AttributeError: 'NoneType' object has no attribute 'token'
TypeError: connect() missing 1 required keyword-only argument: 'password'
ModuleNotFoundError: No module named 'secrets'
import secrets
from getpass import getpass
commit 9fceb02d0ae598e95dc970b74767f19372d61af8
Merge 3f1a2bc into main
index 83db48f..bf1a2c3 100644
sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
run 123e4567-e89b-12d3-a456-426614174000 finished
request id: 7b8f1c9e-0d4f-4a58-9c1b-2f5f6f1f7a10
md5 d41d8cd98f00b204e9800998ecf8427e
version 1.2.3, build 20240117.1
python 3.11.7 (main, Jan  5 2024, 09:12:44) [GCC 12.2.0]
pip install requests==2.31.0 urllib3>=2.0
node v18.19.0, npm 10.2.3
"version": "5.0.0-beta.2+build.7"
2024-01-17T09:12:44.123Z INFO started in 1.234 s
2026-11-22 04:23:46,512 WARNING retrying in 2.0 s
Temperature was 21.5 degrees at 14:30.
The order 4021-88 costs $1,299.00 and ships on 2024-05-16.
flight HAT112 from JFK to SEA, reservation 3JA7XV
user_id: mia_li_3668
payment_method_id = credit_card_4421486
The answer is 42.
2 + 2 * 3 = 8
x = 0.30000000000000004
[1, 2, 3, 5, 8, 13, 21, 34, 55, 89]
0x7ffee4c0 is the address of the frame
<object at 0x7f3b2c1d5e80>
assert add(2, 3) == 5
def test_login_with_wrong_password(client):
def reset_password(user_id: int) -> None:
class PasswordResetForm(forms.Form):
class TokenBucket: refill per second
secrets_manager = SecretsManager(region)
PASSWORD_MIN_LENGTH = 12
PASSWORD_HASHERS = ["argon2", "bcrypt"]
SESSION_COOKIE_AGE = 1209600
CSRF_COOKIE_SECURE = True
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3-8B")
pass
    pass  # nothing to do
passed: 12, failed: 1
the tests pass: 14 of 14
a compass points north
bypass the cache
PassThrough(config)
author: the maintainers
authority: the court
basic understanding of the subject
Basic authentication is enabled.
bearer of bad news
The bearer token is sent in the header.
pin the version in requirements.txt
pin: requests
seed=42
random.seed(1234)
seed: 12345
salt the water
signature: (self, text: str) -> str
function signature mismatch: expected 2 arguments
session = requests.Session()
session_id is None
The session ended after 30 minutes.
cookie=None
Accept the cookie banner first.
code: 200
exit code 137
status code = 404
error code: E0432
def encode(text): return base64.b64encode(text)
SGVsbG8gd29ybGQsIHRoaXMgaXMgYSB0ZXN0IG9mIHRoZSBkZWNvZGVyLg==
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk
48 65 6c 6c 6f 20 77 6f 72 6c 64 21
\\x48\\x65\\x6c\\x6c\\x6f
https://example.com/search?q=hello%20world&page=2
https://docs.python.org/3/library/secrets.html#module-secrets
https://github.com/encode/starlette/blob/master/starlette/routing.py#L42
git clone https://github.com/encode/httpx.git
git@github.com:encode/httpx.git
ssh-keygen -t ed25519 -C "comment"
/usr/lib/python3.11/site-packages/token.py
src/redraft/core/tokens.py:12: error
C:\\Program Files\\Python311\\python.exe
./scripts/rotate_secrets.sh --dry-run
kubectl get secrets -n default
vault kv get secret/app
aws sts get-session-token
gh auth login
npm login
docker login
--password-stdin
--token TOKEN
--api-key KEY
usage: tool [--password PASSWORD] [--token TOKEN]
-p, --password  ask for the password
export API_KEY=
API_KEY=xxxxxxxxxxxx
API_KEY=****
token: null
token: true
"token": ""
password: "********"
password: [redacted]
Password: (hidden)
secretKeyRef:
secret: enabled
secretName: my-app
aws s3api get-object --key reports/2024/01/data7
gpg --recv-keys 3b1f0a9c7d2e4f5a6b7c8d9e0f1a2b3c4d5e6f70
--cache-key 9f86d081884c7d659a2feaa0c55ad015
git show --key 3b1f0a9
- name: Set Up Python
name: Continuous Integration
Name: Visual Studio Code
Display name: Data Pipeline
Owner: Platform Team
Assignee: Support Desk
Customer: Acme Widgets
Contact: Sales Department
client: Java Runtime
valueFrom: secretKeyRef
the passphrase "correct" is wrong
The field 'password' is missing.
Invalid token
Invalid token: expected an identifier
invalid password for user
Unknown token type
Token expired.
token expired at 2024-01-17T09:12:44Z
the token was revoked
token budget: 1200
The budget of 3000 tokens was spent.
SELECT id, name FROM users WHERE password IS NOT NULL;
ALTER TABLE users ADD COLUMN password_hash TEXT;
INSERT INTO tokens (id, value) VALUES (?, ?);
type Token = { kind: TokenKind; text: string };
interface Credentials { username: string; password: string }
public String getPassword() { return password; }
fn token(&self) -> Option<&str>
@app.route("/token", methods=["POST"])
POST /oauth/token HTTP/1.1
Set-Cookie: theme=dark; Path=/
Cookie: lang=en
Content-Type: application/json; charset=utf-8
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36
ETag: "33a64df551425fcc55e4d42a148795d9f25f89d4"
Cache-Control: max-age=604800
scikit-learn==1.4.0
sk-learn-based pipelines are slow
pk_test is the prefix of test keys
hf_hub_download(repo_id="bert", filename="config.json")
ghp_ is the prefix of GitHub's tokens
An AWS key begins with AKIA.
eyJ is how most tokens begin
-----BEGIN CERTIFICATE-----
-----BEGIN PUBLIC KEY-----
-----BEGIN PGP SIGNATURE-----
The user said: my name is not known to you.
Call me Ishmael.
Chapter 12: The Secret Garden
Lorem ipsum dolor sit amet, consectetur adipiscing elit
Der Schlüssel liegt unter der Matte.
パスワードを入力してください
Voici le mot de passe oublié.
I forgot which password rule applied, so I wrote a generic one.
The checks: has_password, has_token, has_api_key.
auth: required
auth=None
authorization: denied
credentials: missing
creds = load_creds()
credentials=credentials
client_secret=client_secret
refresh_token=None
access_token: Optional[str] = None
private_key_path = "keys/server.pem"
ssl_key_file=/etc/ssl/private/server.key
"keys": ["name", "age"]
api keys are rotated monthly
an api-key header
license key
license: MIT
gsk_ and r8_ are prefixes
abcdefghijklmnopqrstuvwxyz
ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
0123456789012345678901234567890123456789
test_refresh_token_is_rotated_after_use PASSED
tests/test_auth.py::test_token_is_refused[expired] PASSED
FAILED tests/test_secrets.py::test_reads_password - AssertionError
E       assert 'token' in {'access': 1}
password policy: rotate every 90 days
mypy: error: Argument "password" to "connect" has incompatible type "None"
Enter password:
Password for 'https://github.com':
bob's password
sudo: a password is required
fatal: Authentication failed for 'https://github.com/x/y.git/'
remote: Invalid username or password.
403 Forbidden: token lacks the scope repo:write
401 {"error": "invalid_token"}
{"error": {"code": "invalid_api_key", "message": "Incorrect API key provided"}}
{"detail": "Authentication credentials were not provided."}
Hi all, the release is out.
Hello again,
Dear Team,
Dear valued customer,
Hey Folks!
Good evening everyone.
Best regards, The Billing Team
Thanks for the quick reply.
Cheers, Support
Regression Tests were approved by Quality Assurance.
Assigned to Backend Developers
Submitted by Background Worker
Requested by: Billing Service
Reviewer: Code Owners
customer: Northern Railways
According to Apple Support the update is safe.
The Message Broker said the queue is full.
The user clicked Save Changes and then Log Out.
It opened Google Chrome, Microsoft Word and Visual Studio Code.
In North America and Western Europe sales fell.
We compared Linear Regression with Random Forest on Amazon Reviews.
Open Settings, then Privacy and Security.
Title: Quarterly Report
HKLM\\SYSTEM\\CurrentControlSet
C:\\Users\\Public\\Documents
NT SERVICE\\MSSQLSERVER
app\\models\\user.rb
the pattern [A-Z]+\\d{3}
CN=Root CA, O=Example Trust
CN=*.example.com
cn=users,cn=accounts,dc=example,dc=test
uid=33(www-data) gid=33(www-data)
cn = connect(dsn)
case 12 of 40 failed
claim 3 was not supported by the text
account 7 of 9 was migrated
Employee ID must be a number
policy: deny
student: 3 grades are missing
member 2 of the cluster left
file 120 of 5000 was skipped
customer number is required
Customer numbers begin with 4.
root@localhost:~# exit
user@host:/tmp$ ls
pip install 'uvicorn[standard]@0.30'
uses: actions/checkout@v4
Feb 29 2024 is a valid date
2026-04-05 06:07:08 INFO app.main: started
2026-04-05T06:07:08Z [info] listening
pods are restarted on failure
kubectl get pods -A
kubectl rollout restart deployment/web
docker run redis:7
docker pull ghcr.io/acme/app:1
FROM python:3.12-slim AS build
image: postgres:16.2-alpine
helm install nginx bitnami/nginx
X-Forwarded-For is not trusted
"client_ip": ""
GET /api/users?page=2&limit=50
/users/3/posts
/accounts/settings
/orgs/acme/repos
https://example.com/articles/20260311-release
insert("users", "name")
Client("https://api.example.com", "application/json")
connect("localhost", 5432)
sign("payload", "RS256")
auth("basic", "required")
config.get("section", "option_name_with_words")
load("weights", "9f86d081884c7d659a2feaa0c55ad015")
setdefault("retries", "three-times-at-most")
line 12:34: syntax error
module utils:5000 characters is too long
see chapter 3:16
This is Visual Studio Code.
I am Very Sorry
trained by Adam with a rate of 0.1
written in Julia, compiled by Pascal
the card 12 of 40
2017-05-16 00:00:04.500 2931 INFO started
2005-06-03-15.42.50.675872 R02-M1 instruction cache parity error corrected
REPORT : 7024 5015 150454 240
driver [req-06631678-1e19-4e4e-bddf-a588d8ea6217] was loaded
[instance: b9000564-fe1a-409b-b8cc-1e88b294cd1d] VM Started
file 20391 of 50000
worker 48210 exited with 0
total 0400 0500 0600
resolve "left-pad" failed
"""


def harmless_texts():
    """Return lines that were made up, and paragraphs of the project's own code and prose."""
    texts = [line for line in LINES.splitlines() if line]
    for folder in ("text", "stores", "evaluate"):
        for path in sorted((ROOT / "src" / "redraft" / folder).glob("*.py")):
            texts += [part for part in path.read_text("utf-8").split("\n\n\n") if len(part) > SHORTEST]
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        texts += page.read_text("utf-8").split("\n\n")
    return texts
