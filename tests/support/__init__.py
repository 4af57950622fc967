"""What the tests share: scripted models and agents, servers, corpora, programs to kill."""
