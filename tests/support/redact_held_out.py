"""Lines that no finder was written for: kept apart from the corpora that are developed against.

Never look at what is missed here to mend it: write lines of the kind into `redact_corpus`, mend those, and
measure here (`benchmarks/redaction.py`). A finder that was fitted to these lines makes the figure worthless.
Names are drawn from lists of thirty countries, values are made at run time; what is to be withheld stands
in «».
"""

from support.redact_corpus import marked_lines

FIRST = """
    Adrija Akatay Aleksander Aleksandras Anders Angela Anne Antonella Ariana Aukusti Aurimas Bengt
    Bruce Cauã Charlotte Christian Châu Codrina Damife Daniel David Debra Demiriz Denise Donato
    Dragica Drahoslava Duuk Duyên Débora Elliot Elma Emmanuel Erik Floortje Gilberto Gloria Hanne
    Hannu Hillevi Ibironke Ildikó Irma Ishaan Ivana Jatin Kaique Kari Karol Karoline Kim Kipkorir
    Klavdija Koech Lara Laura Leandro Lene Leonora Liana Lidia Liepa Linda Linn Lise Liwia Luwes Mai
    Marinka Marius Markéta Mcebisi Minh Mirko Monique Morenike Márton Nada Noël Ogooluwa Olansile
    Pandu Paola Parker Rocco Roger Romolo Ruben Sandile Sibongile Simion Simo Sonia Sonja Sophia
    Stellan Stephen Teobaldo Thembile Theres Thi Tracey Valentine Victoria Vlasta Yesenia Zorka
    Zsófia
""".split()  # noqa: SIM905 (a list of words is read more easily)
LAST = """
    Adebisi Ahmed Akgündüz Akinwale Ambrasas Ashton Aslan Ayandokun Balogun Banko Barnaba Barongo
    Becker Berggren Bigot Bilge Bilir Blanch Brandt Butkus Buzov Cheptoo Coates Cutuli Diaconu
    Dochioiu Doshi Dubandlela Engvall Erjavec Finch Friis Fábián Gheorghiu Gibert Grinius Grover
    Harris Hauge Heintze Hoffmann Hoàng Huijben Hájek Jackson Jerman Juhász Juvonen Kankaanpää Kumer
    Lauridsen Macedo Madlula Maheswara Mai Malá Manço Mathisen Mayasari Mnguni Montserrat Morar
    Mtumaseli Mukhwana Mwania Naujokas Ndlala Nduta Nicolás Nieminen Njue Norling Nugroho Nurmi
    Nygård Odetola Ogunleye Okafor Orbán Pajunen Petrauskas Pietrangeli Praga Ramírez Risek Rocca
    Rodríguez Rupnik Saefullah Sandvik Sanmartín Santos Singh Sousa Stejskal Suciu Sørensen Tara
    Tarhan Tratnik Varga Venäläinen Veselý Vugdelija Vundla Winther Wood Yulianti Zeman Zemanová
""".split()  # noqa: SIM905 (a list of words is read more easily)

HELD_OUT = {
    "names in greetings": (
        "Hi «{f}»,\n\nthe export you asked for is attached.",
        "Dear «{f} {l}»,\nWe regret to inform you that the order was cancelled.",
        "Hello «{f}»! I've looked into the ticket and found two causes.",
        "Good morning «{f}», could you have a look at the failing import?",
        "Hey «{f}» - the nightly job is red again.",
        "Dear Mrs «{l}»:\nyour appointment has been moved.",
        "Many thanks,\n«{f} {l}»\nHead of Logistics",
        "Kind regards\n«{f} {l}»",
        "Best,\n«{f}»",
        "Guten Tag Herr «{l}», Ihre Anfrage ist eingegangen.",
        "Bonjour Madame «{l}», votre colis est en route.",
        "Hola «{f}», tu pedido sale hoy.",
        'The draft begins with "Dear «{f}»," although the form says no first names.',
        "output: Good evening Mr. «{l}», your table is ready",
        "Cheers, «{f}»",
    ),
    "names in reports": (
        "The refund was approved by «{f} {l}» on Monday.",
        "Ticket reassigned from «{f} {l}» to the billing queue.",
        "I spoke with «{f} {l}» about the outage.",
        "«{f} {l}» reported that the invoice shows the wrong total.",
        "Reporter: «{f} {l}»",
        "Assigned to: «{f} {l}»",
        "According to «{f} {l}», the shipment never arrived.",
        "The agent addressed the customer as «{f} {l}», which was the previous caller.",
        "Patient «{f} {l}», 54, was given the wrong dose.",
        '{{"requester": "«{f} {l}»", "priority": 2}}',
        "Author: «{f} {l}» <redacted>",
        "Escalated by «{f} {l}» after three attempts.",
        "Signed-off-by: «{f} {l}»",
        "Interview with «{f} {l}», conducted on 3 March.",
        "Beneficiary: «{l}, {f}»",
        "cc: «{f} {l}»; the audit team",
        "The tenant, «{f} {l}», has not paid since May.",
        "Expected 'approved', got a note from «{f} {l}» instead.",
        "My manager «{f} {l}» wants this by tonight.",
        "Prescribed for «{f} {l}» by the ward.",
    ),
    "domain users": (
        "Login failed for user '«{D}\\{u}»'.",
        "Access denied: «{D}\\{u}» is not in the group.",
        "runas /user:«{D}\\{u}» cmd.exe exited with 5",
        "The service runs as «{D}\\{u}», which has no rights on the share.",
        "Account Name: «{u}»  Account Domain: «{D}»",
        "owner: «{D}\\{u}»",
        "whoami printed «{Dl}\\{u}»",
        "NTLM authentication for «{D}\\{u}» timed out",
        "The task was last changed by «{D}\\\\{u}».",
        "smbclient: session setup failed for [«{D}»]\\[«{u}»]",
        "icacls: «{D}\\{u}»:(OI)(CI)F",
        "SID lookup of «{u}@{D}» gave nothing",
    ),
    "directory entries": (
        "bind as CN=«{f} {l}»,OU=Staff,DC=acme,DC=local failed",
        "uid=«{u}»,ou=people,dc=acme,dc=org not found",
        "Subject: C=DE, O=Acme GmbH, CN=«{f} {l}»",
        "member: CN=«{l}\\, {f}»,OU=Sales,DC=corp,DC=acme,DC=com",
        "manager=cn=«{f} {l}»,ou=board",
        "subject=CN = «{f} {l}», emailAddress = x",
        "ldap_search: no such object (uid=«{u}»)",
        "dn: cn=«{u}»,cn=users,dc=acme",
        "Certificate issued to CN=«{f} {l}» has expired",
        "(&(objectClass=user)(sAMAccountName=«{u}»))",
    ),
    "record numbers": (
        "MRN «{d7}» was merged with another chart.",
        "Policy number «{U2}-{d7}» lapsed.",
        "claim no. «{d4}-{d4}-{U2}» was rejected",
        "Employee ID: «{d6}»",
        "customer number is «{d8}»",
        "member id «{U}{d8}» is not covered",
        "patient_id=«P{d6}» admitted twice",
        "The case number «{d4}-CV-{d5}» was mistyped.",
        "insured under policy «{U3}{d8}»",
        "Personnel no.: «{d6}»",
        "student ID «{d8}» has no grades",
        "Medical record #«{d7}» opened by mistake",
        '"account_number": "«{d10}»"',
        "Kundennummer «{d7}» unbekannt",
        "health insurance number «{U}{d9}»",
        "sort code {d2}-{d2}-{d2}, account «{d8}»",
        "badge no «{d5}» denied at gate 3",
        "driving licence «{U}{d7}» is expired",
    ),
    "shell prompts": (
        "«{u}»@«{h}»:~$ systemctl restart shop",
        "[root@«{h}» ~]# tail -f /var/log/messages",
        "root@«{h}»:/srv/app# ls",
        "«{u}»@«{h}» ~/work (main) % make test",
        "[«{u}»@«{h}» build]$ ./run.sh",
        "deploy@«{h}»> df -h",
        "Last login: Mon on «{h}»\nadmin@«{h}»:~$ exit",
        "(venv) «{u}»@«{h}»:~/src$ pytest -x",
        "postgres@«{h}»:~$ psql -l",
        "ec2-user@«{h}»:/opt$ sudo yum update",
    ),
    "syslog hosts": (
        "Jan 12 03:14:07 «{h}» sshd[2114]: Connection closed",
        "2026-03-01T10:15:00Z «{h}» postgres[991]: checkpoint complete",
        "<34>1 2026-10-11T22:14:15.003Z «{h}» su - ID47 - failed",
        "Oct  3 00:01:59 «{h}» kernel: [12.3] eth0: link down",
        "Feb 28 23:59:59 «{h}» CRON[77]: (root) CMD (run-parts)",
        "2026-02-03T04:05:06.789+01:00 «{h}» systemd[1]: Started cleanup.",
        "Aug  9 11:00:01 «{h}» dockerd: time=now level=error",
        "<13>Dec  1 12:00:00 «{h}» app: out of memory",
        "May 30 07:07:07 «{h}» haproxy[3]: backend down",
    ),
    "pods and registries": (
        "pod/«{pod}» CrashLoopBackOff",
        "kubectl logs «{pod}» -c app",
        'Error from server (NotFound): pods "«{pod}»" not found',
        'Failed to pull image "«{reg}»/shop/api:1.4.2": unauthorized',
        "docker push «{reg}»/team/worker:latest denied",
        "FROM «{reg}»/base/python:3.11",
        "Back-off restarting failed container in pod «{pod}»",
        "default   «{pod}»   0/1   Pending   0   3m",
        "kubectl exec -it «{pod}» -- sh",
        "helm chart pulled from oci://«{reg}»/charts/web",
        "Evicted pod «{pod}» from the node",
        "image: «{reg}»/payments@sha256:" + "0" * 64,
        "OOMKilled: «{pod}» (limit 512Mi)",
    ),
    "client addresses": (
        "X-Forwarded-For: «{ip}», 70.41.3.18",
        "x-forwarded-for=«{ip}»",
        "X-Real-IP: «{ip}»",
        '«{ip}» - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 2326',
        "Forwarded: for=«{ip}»;proto=https",
        '{{"client_ip": "«{ip}»", "path": "/login"}}',
        "Failed password for invalid user admin from «{ip}» port 4242 ssh2",
        "CF-Connecting-IP: «{ip}»",
        "remote_addr «{ip}» was blocked after 5 tries",
        "True-Client-IP: «{ip6}»",
        "REMOTE_HOST=«{h}.dyn.telco.net»",
    ),
    "account ids in addresses": (
        "GET https://app.acme.test/accounts/«{d8}»/billing 403",
        "https://api.stripe.com/v1/customers/cus_«{m14}» returned 404",
        "https://«{d12}».signin.aws.amazon.com/console",
        "https://login.microsoftonline.com/«{uuid}»/oauth2/token",
        "POST /v2/users/«{uuid}»/reset 500",
        "https://acme.test/profile?user_id=«{d9}»&tab=2",
        "PUT /tenants/«{hex24}»/members failed",
        "https://portal.acme.test/patients/«{d7}»/chart",
        "GET /api/customers/«{d6}»/orders?page=2",
        "https://console.acme.test/?account=«{d12}»&region=eu",
        "https://sqs.eu-west-1.amazonaws.com/«{d12}»/jobs",
        "DELETE /members/«{d8}» -> 409",
        "open https://crm.acme.test/contacts/view/«{d10}»",
    ),
    "keys as second arguments": (
        'client = Client("eu", "«{key}»")',
        "stripe.init('acct', '«{key}»')",
        "createClient('https://x.test', '«{key}»')",
        'new Mailer("noreply", "«{key}»").send()',
        "redis.auth('default', '«{pw}»')",
        'aws.configure("AKI", "«{key}»")',
        'openSession(host, "«{key}»")',
        "encrypt(data, '«{hex32}»')",
        'Telegram.connect(12345, "«{hex32}»")',
        "jwt.sign(payload, '«{pw}»')",
        "pusher = Pusher('10231', '«{hex20}»', '«{hex20b}»')",
        'TwilioClient(sid, "«{hex32}»")',
        "verify_signature(body, '«{key}»') was False",
        "HTTPBasicAuth('svc', '«{pw}»')",
        "setHeader('X-Api-Key', '«{key}»')",
    ),
    "other personal data": (
        "Reach me at «{u}@mail.telco.net» or by post.",
        "Her mobile is «+44 7700 9{d5}».",
        "Call «(212) 555-{d4}» after six.",
        "delivered to «{d2} Elm Tree Avenue», second floor",
        "born «1979-0{n}-1{n}»",
        "card «{card}» exp 09/29 was declined",
        "IBAN «{iban}» was refused",
        "SSN on file: «{ssn}»",
        "passport «{U2}{d7}» is required",
        "customer_name=«{f} {l}»",
        "Frau «{l}» wohnt in der «Lindenstraße {d2}»",
        '"phone": "«0{d3} {d7}»"',
        "Tel. «0{d3}-{d7}»",
    ),
    "secrets": (
        "The vault answered: «{key}» (that is the admin token)",
        "I pasted «{pw}» where the password goes",
        "export SVC_SECRET='«{key}»'",
        "psql postgres://svc:«{pw}»@db/x",
        "--auth-token «{key}» --verbose",
        "wrong passphrase “«{pw}»”",
        '{{"headers": {{"x-api-key": "«{key}»"}}}}',
        "curl -u svc:«{pw}» https://x.test",
        "2FA code «{d6}» was typed by the agent",
        "Set-Cookie: sid=«{key}»; HttpOnly",
        "env PGPASSWORD=«{pw}» pg_dump",
        "the signing key is «{hex64}»",
    ),
    "hosts and resources": (
        "could not resolve «{h}.corp.acme.com»",
        "connection to «{h}.prod.internal»:5432 refused",
        "ssh: connect to host «{h}» port 22: timed out",
        "mount «nas{n}:/export/home» failed",
        "wrote s3://«{D2}-backups/daily.tar»",
        "arn:aws:s3:::«{D2}-logs» is public",
        "server «10.{n}.7.1{n}» is unreachable",
        "jdbc:postgresql://«{h}»:5432/shop",
        "opened /home/«{u}»/notes.txt",
        "\\\\«{h}»\\share$ is not accessible",
    ),
}


def held_out_lines(seed=101):
    """The lines, each with values of its own."""
    return marked_lines(HELD_OUT, FIRST, LAST, seed)


HARMLESS = """
Hi there,
Hello World!
Hello, world
Dear customer, your order has shipped.
Dear Sir or Madam,
Dear Hiring Manager,
Hi team, the build is green again.
Hey everyone - standup moved to ten.
Good morning! Here is the summary.
Best regards,
Thanks, Support Team
Kind regards,
Cheers
Hello Kubernetes, goodbye Docker Swarm
Approved by the release manager on Monday.
Reported by Static Analysis as a null dereference.
Assigned to: Platform Engineering
Assigned to the Payments Team
Reviewed by Continuous Integration
Signed-off-by line is missing
Reporter: Automated Scanner
Author: The Pallets Team
Written by Apache Software Foundation
According to Stack Overflow, this is a known bug.
According to the docs the default is 10.
Spoke with Customer Success about the renewal flow.
Owner: Data Platform
Contact: Help Desk
Maintainer: Debian Python Team
Google Cloud reported that the quota was exceeded.
Visual Studio reported that the project is out of date.
Null Pointer was raised by Spring Boot
Patient Monitoring was offline
The Customer Portal asked for a second login.
Prometheus Operator said the rule is invalid
Load Balancer called the health check twice
User Interface wrote to the log
C:\\Windows\\System32\\drivers
HKEY_LOCAL_MACHINE\\Software\\Policies
NT AUTHORITY\\SYSTEM has full control
BUILTIN\\Administrators
path\\to\\file
src\\main\\java
The regex \\d+\\w* matches
LaTeX \\textbf{bold} and TABLE\\n
re.compile("A\\B")
escaped as FOO\\nBAR
CN=localhost
CN=Let's Encrypt Authority X3,O=Let's Encrypt,C=US
CN=ISRG Root X1
dc=example,dc=org
cn=admin,dc=example,dc=org
(objectClass=person)
uid=1000(node) gid=1000(node)
uid=0 gid=0 groups=0
issue number 4812 is closed
PR #20391 was merged
record number 12 of 500 was skipped
case 3 of the switch falls through
Case number 7 failed in the table
line number 10432
port number 8080
policy: retry three times
The policy number of retries is 3
claim: the cache is warm
member id is required
employee_id INTEGER PRIMARY KEY
patient_id: int
customer number must not be empty
account: default
build number 20260311.4
ticket 88213 was closed as duplicate
error number 1045
version number 3.11.7
$ npm install
$ ls -la
# apt-get update
>>> print("hello")
% cargo build
user@host:~$ ls
user@localhost:~$ make
root@localhost:/# whoami
git clone git@github.com:acme/shop.git
npm i @types/node@20.11.5
pip install git+https://github.com/encode/httpx@master
from app@2.0 import x
Jan 12 03:14:07 localhost sshd[2114]: Connection closed
Jan 2026 release notes
Mar 3 meeting: agreed on the plan
2026-03-01T10:15:00Z INFO Started worker in 1.2s
2026-03-01 10:15:00 ERROR django.request: Internal Server Error
2026-03-01T10:15:00Z error: build failed
Dec 25 is a holiday
kubectl get pods -n kube-system
pod is not ready
pods "web" not found
kubectl apply -f deployment-v2.yaml
docker pull python:3.11-slim
FROM node:20-alpine
docker.io/library/postgres:16
ghcr.io/astral-sh/uv:latest
quay.io/prometheus/node-exporter:v1.7.0
mcr.microsoft.com/dotnet/sdk:8.0
registry.npmjs.org
https://registry.npmjs.org/left-pad
image: nginx:1.25
gcr.io/distroless/static
public.ecr.aws/lambda/python:3.12
X-Forwarded-For header was missing
X-Forwarded-For: 127.0.0.1
X-Forwarded-Proto: https
client_ip: null
listening on 0.0.0.0:8080
version 4.18.0.1 of the driver
GET /users/42 404
GET /api/v1/users/me 200
/accounts/login/?next=/
/customers/new
https://docs.example.com/users/guide
https://github.com/pallets/flask/issues/4812
https://stackoverflow.com/questions/231767/what-does-the-yield-keyword-do
https://bugs.python.org/issue12345678
https://example.com/?page=20391&sort=asc
https://news.example.com/2026/03/11/20391-title
DELETE /items/8842210
print("name", "value")
get("users", "b5f1c2d4")
assertEqual("abc", "abd")
open("notes.txt", "r")
replace("foo", "bar_baz_quux")
getattr(module, "parse_arguments_from_command_line")
hashlib.new("sha256", "payload")
assert sha256("abc", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")
t("greeting", "Welcome back to the shop")
strftime("%Y", "2026-03-11T10:15:00")
subprocess.run("make", "test-integration-x86_64")
checkout("main", "3b1f0a9c7d2e4f5a6b7c8d9e0f1a2b3c4d5e6f70")
query("SELECT 1", "SELECT id FROM users WHERE id = 4")
The Monte Carlo estimate converged.
Paris, Berlin and San Francisco are in the list.
Mark the field as required.
Will the test pass?
May Day is on a Friday.
Grace Period ended, so the Job was Killed.
the Bloom Filter and the Bell Curve
Hash Map, Linked List, Binary Tree
Christmas Eve batch
Read The Docs is down
GitHub Actions ran the job on Ubuntu
Amazon Web Services
Machine Learning Engineer
TypeError: Cannot read properties of undefined
United States, New York, Los Angeles
The Great Gatsby was in the training data.
Bayesian Optimization picked 0.3
Gaussian Process, Markov Chain, Euler Method
Docker Compose, Ruby on Rails, Java Virtual Machine
Dijkstra finds the shortest path; Floyd Warshall finds all.
Alice and Bob share a key.
The Fibonacci sequence starts 1, 1, 2
Friday the 13th
""".strip().splitlines()


def held_out_harmless():
    """Return lines in which nothing is to be withheld, hard ones of the kinds above."""
    return [line for line in HARMLESS if line]
