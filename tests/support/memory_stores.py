"""Look into a `MemoryStore` from a test that is not its user: copy it as it is, read it, damage it."""

from redraft.stores.sqlite import MemoryStore


def connection_of(store):
    """The connection of a store that has been used."""
    return store._database.connect()


def copy_of(store, *, without=()):
    """A store with the records of another as they are at this moment, except of some kinds.

    It is what a process leaves that is killed now: without the lease, another one can go on.
    """
    copy = MemoryStore()
    connection = copy._database.connect()
    connection_of(store).backup(connection)
    for kind in without:
        connection.execute("DELETE FROM records WHERE kind = ?", (kind,))
    return copy


def damage(store, kind, key="%"):
    """Damage a record, or all of a kind."""
    damaged = "UPDATE records SET data = '{' WHERE kind = ? AND key LIKE ?"
    connection_of(store).execute(damaged, (kind, key))
