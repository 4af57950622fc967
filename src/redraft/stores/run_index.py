"""RunIndex: find and add up kept runs by columns, beside the records that hold them whole."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    cast,
    get_args,
    runtime_checkable,
)

from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.stores.base import Record, Row, Scalar, Store, after_all_with, json_text, microseconds

if TYPE_CHECKING:
    from redraft.types import TokenUsage

RUN = "run"
"""The kind of the records of runs."""
DAMAGED = "damaged"
"""The status of a run whose record, or the columns in it, can't be read."""
ENDED = ("finished", "failed", "cancelled", DAMAGED)
"""The statuses of runs that have ended."""

RunWhere: TypeAlias = Mapping[str, Scalar | tuple[Scalar, ...]]
"""Which runs are meant: each named column has the value, or one of a tuple of values."""
Column: TypeAlias = Literal[
    "agent", "model", "judge", "task", "is_advised", "strategy", "max_iterations", "threshold", "selection"
]
Facet: TypeAlias = Literal["role", "role_model"]
GroupBy: TypeAlias = Column | Facet | Literal["day"]


@dataclass(frozen=True, slots=True)
class RunRow:
    """The columns of one run.

    `task` is a digest of the task, `criteria` the scores of the first and the best version by each criterion.
    `host`, `pid` and `process_started` name the process that works on it, or did. `known_usd` is what is
    known of the cost; `unpriced` says that there is more. `later_` is what came after the best version.
    """

    run_id: str
    created_at: datetime
    status: str = DAMAGED
    reason: str = ""
    agent: str = ""
    model: str = ""
    judge: str = ""
    task: str = ""
    parent: str = ""
    is_inner: bool = False
    host: str = ""
    pid: int = 0
    process_started: str = ""
    is_advised: bool = False
    strategy: str = ""
    max_iterations: int | None = None
    threshold: float | None = None
    selection: str = ""
    versions: int = 0
    first_score: float | None = None
    best_score: float | None = None
    satisfactory: bool = False
    seconds: float = 0.0
    requests: int = 0
    failed_requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    known_usd: float = 0.0
    unpriced: bool = True
    later_tokens: int = 0
    later_usd: float = 0.0
    later_unpriced: bool = False
    criteria: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict[str, Any])

    @property
    def cost_usd(self) -> float | None:
        """What the run cost; None where a part of that is not known."""
        return None if self.unpriced else self.known_usd


@dataclass(frozen=True, slots=True)
class Share:
    """What one role used of a run (`facet` is `role`), or all roles of one model (`role_model`)."""

    facet: str
    value: str
    requests: int = 0
    failed_requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    known_usd: float = 0.0
    unpriced: bool = False


class RunEntry(NamedTuple):
    """All that the index holds of a run."""

    row: RunRow
    shares: tuple[Share, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """Return the entry as the record of a run carries it in `data["index"]`."""
        columns: dict[str, Any] = {name: getattr(self.row, name) for name in _COLUMNS}
        columns["criteria"] = {name: list(scores) for name, scores in self.row.criteria.items()}
        columns["shares"] = [[getattr(share, name) for name in _SHARE] for share in self.shares]
        return columns

    @classmethod
    def of(cls, run_id: str, created_at: datetime, data: Mapping[str, Any]) -> Self:
        """Read the entry from a run's data; where that can't be done, its status is `damaged`."""
        try:
            index = data["index"]
            columns = {name: _checked(index[name], kind) for name, kind in _COLUMNS.items()}
            criteria = {name: (first, best) for name, (first, best) in index["criteria"].items()}
            shares = tuple(
                Share(*(_checked(value, kind) for value, kind in zip(share, _SHARE.values(), strict=True)))
                for share in index["shares"]
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return cls(RunRow(run_id, created_at))
        return cls(RunRow(run_id, created_at, criteria=criteria, **columns), shares)


def spent(usages: Iterable[TokenUsage]) -> dict[str, Any]:
    """Add up usages for a row or a share: what is known of the cost, and whether there is more."""
    used = list(usages)
    return {
        "requests": sum(one.requests for one in used),
        "failed_requests": sum(one.failed_requests for one in used),
        "input_tokens": sum(one.input_tokens for one in used),
        "output_tokens": sum(one.output_tokens for one in used),
        "known_usd": sum((one.cost_usd or 0.0 for one in used), 0.0),
        "unpriced": any(one.cost_usd is None for one in used),
    }


@dataclass(slots=True)
class Totals:
    """Sums over runs.

    `cost_usd` is what is known of the cost, and `unknown` counts the runs that cost more than that; so do
    `later_usd` and `later_unknown` for what came after the best version. `latest` is the greatest id.
    """

    runs: int = 0
    requests: int = 0
    failed_requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unknown: int = 0
    later_tokens: int = 0
    later_usd: float = 0.0
    later_unknown: int = 0
    latest: str = ""

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def add(self, other: Totals) -> None:
        """Add the sums of other runs."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.latest = max(self.latest, other.latest)

    @classmethod
    def of(cls, run_id: str, used: RunRow | Share) -> Self:
        """Return the sums of one run, or of a share in it."""
        tokens = used.input_tokens, used.output_tokens
        totals = cls(
            1, used.requests, used.failed_requests, *tokens, used.known_usd, int(used.unpriced), latest=run_id
        )
        if isinstance(used, RunRow):
            totals.later_tokens, totals.later_usd = used.later_tokens, used.later_usd
            totals.later_unknown = int(used.later_unpriced)
        return totals


class RunIndex(Protocol):
    """Query the runs of a store by their columns.

    The record of a run carries its columns as `data["index"]`. SQLite and PostgreSQL write them to tables of
    their own in the transaction that writes the record, so the two never disagree. Of any other store, the
    records themselves are read.

    `where` names columns; the runs began at `since` or later, and before `until` (UTC). Every method raises
    `ConfigError` for a column that runs don't have, and `StoreError` when the store can't be read.
    """

    async def find(
        self,
        where: RunWhere | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        prefixes: Sequence[str] = (),
        after: RunRow | Record | None = None,
        limit: int | None = None,
    ) -> list[RunRow]:
        """Return rows, the newest run first.

        `prefixes` are beginnings of ids, one of which a run must have. `after` is the last run of the page
        before, as its row, or as any record that was created then.
        """
        ...

    async def group(
        self,
        by: GroupBy,
        where: RunWhere | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> dict[Any, Totals]:
        """Return the sums of the runs that have a value in common, by that value.

        `day` is the date (UTC) on which a run began. By `role`, a run counts once for each role, with what
        that used; by `role_model`, once for each model that a role was given to. Runs that have not ended
        have neither.
        """
        ...


@runtime_checkable
class IndexedStore(Store, Protocol):
    """A `Store` that keeps the columns of its runs in tables."""

    def run_index(self) -> RunIndex:
        """Return the index of its runs."""
        ...


def run_index(store: Store) -> RunIndex:
    """Return the index of a store's runs; one without tables of them is read record by record."""
    return store.run_index() if isinstance(store, IndexedStore) else RunScan(store)


class RunScan:
    """A `RunIndex` that reads the records of all runs, for a store without columns."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(
        self,
        where: RunWhere | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        prefixes: Sequence[str] = (),
        after: RunRow | Record | None = None,
        limit: int | None = None,
    ) -> list[RunRow]:
        """Return rows, the newest run first."""
        rows = [
            row
            for row, _ in await self._entries(where, since, until)
            if (not prefixes or row.run_id.startswith(tuple(prefixes)))
            and (after is None or _age(row) < _age(after))
        ]
        return sorted(rows, key=_age, reverse=True)[:limit]

    async def group(
        self,
        by: GroupBy,
        where: RunWhere | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> dict[Any, Totals]:
        """Return the sums of the runs that have a value in common, by that value."""
        _check_group(by)
        found: dict[Any, Totals] = {}
        for row, shares in await self._entries(where, since, until):
            if by in get_args(Facet):
                parts = [(share.value, Totals.of(row.run_id, share)) for share in shares if share.facet == by]
            else:
                value = row.created_at.date() if by == "day" else getattr(row, by)
                parts = [(value, Totals.of(row.run_id, row))]
            for value, totals in parts:
                found.setdefault(value, Totals()).add(totals)
        return found

    async def _entries(
        self, where: RunWhere | None, since: datetime | None, until: datetime | None
    ) -> list[RunEntry]:
        wanted = {column: _wanted(column, value) for column, value in (where or {}).items()}
        found: list[RunEntry] = []
        after = None
        while page := await self._store.find(RUN, newest_first=True, after=after, limit=_PAGE):
            for record in page:
                data: Mapping[str, Any] = {} if record.damage else record.data
                entry = RunEntry.of(record.key, record.created_at or _EPOCH, data)
                if (
                    (since is None or entry.row.created_at >= since)
                    and (until is None or entry.row.created_at < until)
                    and all(getattr(entry.row, column) in values for column, values in wanted.items())
                ):
                    found.append(entry)
            if len(page) < _PAGE:
                break
            after = page[-1]
        return found


class SqlRunIndex:
    """A `RunIndex` on the tables `runs` and `run_shares`, in SQL that SQLite and PostgreSQL share.

    `ask` carries out a statement, in which `:name` stands for a value, and returns the rows that it finds.
    """

    def __init__(
        self, space: str, ask: Callable[[str, dict[str, Any]], Awaitable[Sequence[Sequence[Any]]]]
    ) -> None:
        self._space = space
        self._ask = ask

    async def find(
        self,
        where: RunWhere | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        prefixes: Sequence[str] = (),
        after: RunRow | Record | None = None,
        limit: int | None = None,
    ) -> list[RunRow]:
        """Return rows, the newest run first."""
        condition, values = self._condition(where, since, until)
        if prefixes:
            numbers = range(len(prefixes))
            any_of = " OR ".join(f"(run_id >= :first_{at} AND run_id < :beyond_{at})" for at in numbers)
            condition += f" AND ({any_of})"
            for at, prefix in enumerate(prefixes):
                values |= {f"first_{at}": prefix, f"beyond_{at}": after_all_with(prefix)}
        if after is not None:
            at, run_id = _age(after)
            condition += " AND (created_at, run_id) < (:at, :after)"
            values |= {"at": microseconds(at), "after": run_id}
        columns = ", ".join(_ALL_COLUMNS)
        sql = f"SELECT {columns} FROM runs WHERE {condition} ORDER BY created_at DESC, run_id DESC"  # noqa: S608 (made of constants)
        if limit is not None:
            sql += " LIMIT :limit"
            values["limit"] = limit
        return [_row(found) for found in await self._ask(sql, values)]

    async def group(
        self,
        by: GroupBy,
        where: RunWhere | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> dict[Any, Totals]:
        """Return the sums of the runs that have a value in common, by that value."""
        _check_group(by)
        condition, values = self._condition(where, since, until)
        if by in get_args(Facet):
            if not set(where or {}) <= set(_OF_SHARES):
                runs = f"SELECT run_id FROM runs WHERE {condition}"  # noqa: S608 (made of constants)
                condition = f"space = :space AND run_id IN ({runs})"
            condition += " AND facet = :facet"
            values["facet"] = by
            sql = f"SELECT value, {_SPENT} FROM run_shares WHERE {condition} GROUP BY 1"  # noqa: S608 (made of constants)
        else:
            value = f"created_at / {_DAY}" if by == "day" else by
            sql = f"SELECT {value}, {_SPENT}, {_LATER} FROM runs WHERE {condition} GROUP BY 1"  # noqa: S608 (made of constants)
        found: dict[Any, Totals] = {}
        for value, latest, *sums in await self._ask(sql, values):
            if by == "day":
                key = _EPOCH.date() + timedelta(days=value)
            else:
                key = _from_column(value, _COLUMNS.get(by, "str"))
            found[key] = Totals(*sums, latest=latest)
        return found

    def _condition(
        self, where: RunWhere | None, since: datetime | None, until: datetime | None
    ) -> tuple[str, dict[str, Any]]:
        parts, values = ["space = :space"], dict[str, Any](space=self._space)
        if since is not None:
            parts.append("created_at >= :since")
            values["since"] = microseconds(since)
        if until is not None:
            parts.append("created_at < :until")
            values["until"] = microseconds(until)
        for column, value in (where or {}).items():
            wanted = _wanted(column, value)
            # Ids are the keys of records, which every database takes as they are.
            held = wanted if column == "run_id" else map(_to_column, wanted)
            known = {f"{column}_{at}": one for at, one in enumerate(held) if one is not None}
            values |= known
            any_of = [f"{column} IN ({', '.join(f':{name}' for name in known)})"] if known else []
            any_of += [f"{column} IS NULL"] if len(known) < len(wanted) else []
            parts.append(f"({' OR '.join(any_of) or '1 = 0'})")
        return " AND ".join(parts), values


def writes(space: str, row: Row, data: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the statements, with `:name` for each value, that write the columns of a stored run."""
    entry = RunEntry.of(row.key, _EPOCH + timedelta(microseconds=row.created_at), data)
    key = {"space": space, "run_id": row.key}
    columns = {name: _to_column(getattr(entry.row, name)) for name in _COLUMNS} | {
        "created_at": row.created_at
    }
    criteria = json_text({name: list(scores) for name, scores in entry.row.criteria.items()})
    of_shares = {name: columns[name] for name in _OF_SHARES}
    shares = [{name: _to_column(getattr(share, name)) for name in _SHARE} for share in entry.shares]
    return [
        (_PUT_RUN, columns | key | {"criteria": criteria}),
        (_DELETE_SHARES, key),
        *((_PUT_SHARE, share | of_shares | key) for share in shares),
    ]


def removals(space: str, run_id: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the statements that remove the columns of a run."""
    key = {"space": space, "run_id": run_id}
    return [(_DELETE_SHARES, key), (_DELETE_RUN, key)]


_PAGE = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000_000
_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "int | None": (int, type(None)),
    "float": (float, int),
    "float | None": (float, int, type(None)),
}
_ALL_COLUMNS = {one.name: str(one.type) for one in fields(RunRow)}
_COLUMNS = {name: kind for name, kind in _ALL_COLUMNS.items() if kind in _KINDS and name != "run_id"}
_SHARE = {one.name: str(one.type) for one in fields(Share)}
_OF_SHARES = ("created_at", "status", "is_inner")
"""Columns of a run that its shares repeat, so that the usual filters need no join."""
_SUMS = tuple(one.name for one in fields(Totals) if one.name != "latest")


def _checked(value: Any, kind: str) -> Any:
    """Return a value as a column of a kind holds it; raises `TypeError` for any other."""
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise TypeError(f"{value!r} is no {kind}")
    return float(value) if kind.startswith("float") and value is not None else value


def _age(run: RunRow | Record) -> tuple[datetime, str]:
    """Return what runs are ordered by."""
    return run.created_at or _EPOCH, run.run_id if isinstance(run, RunRow) else run.key


def _check_group(by: str) -> None:
    known = (*get_args(Column), *get_args(Facet), "day")
    if by not in known:
        raise ConfigError(f"Runs can't be grouped by {by!r}; {nearest(by, known)}")


def _wanted(column: str, value: Scalar | tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    """Return the values that a column may have; raises `ConfigError` where there is no such column."""
    if column not in _COLUMNS and column != "run_id":
        raise ConfigError(f"Runs have no column {column!r}; {nearest(column, ('run_id', *_COLUMNS))}")
    return value if isinstance(value, tuple) else (value,)


def _to_column(value: Any) -> Any:
    """Return a value as databases hold it: a text as in JSON, for some take no NUL and no lone surrogate."""
    if isinstance(value, str):
        return json_text(value)[1:-1]
    return int(value) if isinstance(value, bool) else value


def _from_column(value: Any, kind: str) -> Any:
    if kind == "str" and "\\" in value:
        return json.loads(f'"{value}"')
    return bool(value) if kind == "bool" else value


def _row(found: Sequence[Any]) -> RunRow:
    run_id, microseconds_, *values, criteria = found
    columns = map(_from_column, values, _COLUMNS.values())
    scores = {name: (first, best) for name, (first, best) in json.loads(criteria).items()}
    make = cast("Callable[..., RunRow]", RunRow)  # the columns are in the order of its fields
    return make(run_id, _EPOCH + timedelta(microseconds=microseconds_), *columns, scores)


def _insert(table: str, names: Iterable[str]) -> str:
    columns = ("space", *names)
    values = ", ".join(f":{name}" for name in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"  # noqa: S608 (made of constants)


def _sums(columns: Mapping[str, str]) -> str:
    # What PostgreSQL gives for a sum depends on what is summed: a numeric, say.
    return ", ".join(f"CAST(sum({column}) AS {kind})" for column, kind in columns.items())


_BIG, _DOUBLE = "bigint", "double precision"
_CALLS = {"requests": _BIG, "failed_requests": _BIG, "input_tokens": _BIG, "output_tokens": _BIG}
_SPENT = f"max(run_id), count(*), {_sums({**_CALLS, 'known_usd': _DOUBLE, 'unpriced': _BIG})}"
_LATER = _sums({"later_tokens": _BIG, "later_usd": _DOUBLE, "later_unpriced": _BIG})
_PUT_RUN = (
    f"{_insert('runs', _ALL_COLUMNS)} ON CONFLICT (space, run_id) DO UPDATE SET "
    f"{', '.join(f'{name} = excluded.{name}' for name in _ALL_COLUMNS if name != 'run_id')}"
)
_PUT_SHARE = _insert("run_shares", ("run_id", *_SHARE, *_OF_SHARES))
_DELETE_RUN = "DELETE FROM runs WHERE space = :space AND run_id = :run_id"
_FACETS = ", ".join(f"'{facet}'" for facet in get_args(Facet))  # named, so that the key finds the run
_DELETE_SHARES = f"DELETE FROM run_shares WHERE space = :space AND facet IN ({_FACETS}) AND run_id = :run_id"  # noqa: S608 (made of constants)
