"""Internal names and addresses are withheld on request, and nothing else is."""

import pytest

from redraft.redact.kinds import Category
from redraft.redact.redactor import Redactor

INFRASTRUCTURE = {
    "connect to 10.1.2.3:5432 failed": "connect to [withheld: network address]:5432 failed",
    "192.168.0.7": "[withheld: network address]",
    "ssh bob@52.14.3.9": "ssh [withheld: user name]@[withheld: network address]",
    "fd12:3456:789a::1": "[withheld: network address]",
    "mac 3c:22:fb:aa:01:7e": "mac [withheld: network address]",
    "127.0.0.1:80 8.8.8.8 192.0.2.4 ::1": "127.0.0.1:80 8.8.8.8 192.0.2.4 ::1",
    (at := "version 10.1.2.3, std::vector, 12:30:45, node v18.19.0"): at,
    "db01.prod.internal is down": "[withheld: host name] is down",
    "http://billing-svc:8080/x": "http://[withheld: host name]:8080/x",
    "shop.c9x.eu-west-1.rds.amazonaws.com": "[withheld: host name]",
    "jenkins.acme.com": "[withheld: host name]",
    "connect to host build7 port 22": "connect to host [withheld: host name] port 22",
    "tenant acme-corp.onmicrosoft.com": "tenant [withheld: host name]",
    "host: db-prod-03": "host: [withheld: host name]",
    "threading.local() and redraft.core.internal": "threading.local() and redraft.core.internal",
    (web := "https://docs.python.org http://localhost:80 www.example.com"): web,
    "arn:aws:s3:::acme-data/x": "[withheld: cloud resource]",
    "arn:aws:iam::123456789012:role/x": "[withheld: cloud resource]",
    "s3://acme-data/x.csv": "[withheld: cloud resource]",
    "adalove@web-3:~$ ls": "[withheld: user name]@[withheld: host name]:~$ ls",
    "Jan 12 03:14:07 web-3 sshd[2]: x": "Jan 12 03:14:07 [withheld: host name] sshd[2]: x",
    "pod shop-7d4b9c6f8d-x2x9z": "pod [withheld: host name]",
    "docker pull acme.azurecr.io/web:1": "docker pull [withheld: host name]:1",
    "docker pull ghcr.io/acme/web:1": "docker pull ghcr.io/acme/web:1",
    "open /home/adalove/x.py": "open /home/[withheld: user name]/x.py",
    "C:\\Users\\adalove\\x": "C:\\Users\\[withheld: user name]\\x",
    "/home/user/x": "/home/user/x",
}


@pytest.mark.parametrize(("text", "expected"), INFRASTRUCTURE.items())
def test_infrastructure_is_withheld(text, expected):
    redactor = Redactor(also=[Category.INFRASTRUCTURE])
    assert redactor.redact(text).text == expected
    assert redactor.is_clean(expected)
    assert Redactor().redact(text).text == text
