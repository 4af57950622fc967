"""RunIndex: a columnar index of runs, lesson and note uses, and expenses."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    get_args,
    runtime_checkable,
)

from redraft._texts import counted
from redraft._validation import nearest
from redraft.errors import ConfigError, DamagedRecordError
from redraft.redact.log import warn_once
from redraft.stores.base import (
    Record,
    Row,
    Scalar,
    Store,
    after_all_with,
    json_text,
    microseconds,
    time_of,
)

if TYPE_CHECKING:
    from redraft.types import TokenUsage

RUN, LESSON_USE, NOTE_USE = "run", "lesson_use", "note_use"
"""The kinds of the records of runs, and of their uses of lessons and notes."""
CYCLE, NOTE_COST = "cycle", "ensemble_step"
"""The kinds of the records of agents' cycles, and of the costs of notes on runs."""
DAMAGED = "damaged"
"""The status of a run whose record or columns can't be read."""
ENDED = ("finished", "failed", "cancelled", DAMAGED)
"""The statuses of runs that have ended."""

Column: TypeAlias = Literal[
    "agent",
    "model",
    "judge",
    "task",
    "is_advised",
    "strategy",
    "max_iterations",
    "threshold",
    "selection",
    "day",
]
Facet: TypeAlias = Literal["role", "role_model"]
GroupBy: TypeAlias = Column | Facet


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Usage of model calls: columns of runs, of shares and of expenses."""

    requests: int = 0
    failed_requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    known_usd: float = 0.0
    """Known part of the cost."""
    unpriced: bool = False
    """Whether part of the cost is unknown."""


@dataclass(frozen=True, slots=True)
class Share(Spent):
    """The part of a run's usage that belongs to one role, one model or one revision."""

    facet: str
    """`role`, `role_model` (all roles of a model) or `way` (a revision)."""
    value: str
    """Name of the role or model; for a revision, its number, how it was made, and whether it was a gain."""


class RunShare(NamedTuple):
    """A share with the agent and the model of its run."""

    agent: str
    model: str
    value: str
    input_tokens: int
    output_tokens: int
    known_usd: float
    unpriced: bool


@dataclass(frozen=True, slots=True)
class RunRow(Spent):
    """The columns of one run; a damaged run has only its id and time.

    `host`, `pid` and `process_started` identify the last process that worked on the run. Columns with
    `later_` are the usage after the best version.
    """

    run_id: str
    created_at: datetime
    status: str = DAMAGED
    reason: str = ""
    agent: str = ""
    model: str = ""
    judge: str = ""
    task: str = ""
    """Digest of the task."""
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
    later_tokens: int = 0
    later_usd: float = 0.0
    later_unpriced: bool = False
    criteria: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict[str, Any])
    """Scores of the first and the best version by each criterion."""
    shares: tuple[Share, ...] = ()
    """Usage by role, model and revision; empty in rows from an index, which only sums shares up."""

    @property
    def day(self) -> date:
        """The date (UTC) on which the run began."""
        return self.created_at.astimezone(UTC).date()

    @property
    def cost_usd(self) -> float | None:
        """The cost of the run; None if part of it is unknown."""
        return None if self.unpriced else self.known_usd

    def to_data(self) -> dict[str, Any]:
        """The columns and shares in the form of `data["index"]` in the run's record."""
        columns: dict[str, Any] = {name: getattr(self, name) for name in _COLUMNS}
        columns["criteria"] = {name: list(scores) for name, scores in self.criteria.items()}
        columns["shares"] = [[getattr(share, name) for name in _SHARE] for share in self.shares]
        return columns

    @classmethod
    def of(cls, run_id: str, created_at: datetime, data: Mapping[str, Any]) -> Self:
        """Read a row from a run's data; its status is `damaged` if the data can't be read."""
        try:
            index = data["index"]
            columns = {name: _checked(index[name], kind) for name, kind in _COLUMNS.items()}
            criteria = {name: (first, best) for name, (first, best) in index["criteria"].items()}
            shares = tuple(Share(**_named(share, _SHARE)) for share in index["shares"])
        except (DamagedRecordError, KeyError, TypeError, ValueError, AttributeError):
            return cls(run_id, created_at, unpriced=True)
        return cls(run_id, created_at, criteria=criteria, shares=shares, **columns)


def spent(usages: Iterable[TokenUsage]) -> dict[str, Any]:
    """Add up usages for a row or a share."""
    used = list(usages)
    return {
        "requests": sum(usage.requests for usage in used),
        "failed_requests": sum(usage.failed_requests for usage in used),
        "input_tokens": sum(usage.input_tokens for usage in used),
        "output_tokens": sum(usage.output_tokens for usage in used),
        "known_usd": sum((usage.cost_usd or 0.0 for usage in used), 0.0),
        "unpriced": any(usage.cost_usd is None for usage in used),
    }


@dataclass(slots=True)
class Totals:
    """Sums over runs or expenses; fields with `later_` sum the usage after the best version."""

    runs: int = 0
    """Number of runs or expenses."""
    requests: int = 0
    failed_requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    """Known part of the cost."""
    unknown: int = 0
    """Number of runs or expenses whose cost is partly unknown."""
    later_tokens: int = 0
    later_usd: float = 0.0
    later_unknown: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def add(self, other: Totals) -> None:
        """Add the sums of other runs."""
        for each in fields(other):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Count(NamedTuple):
    """Number of runs, and the greatest of their ids."""

    runs: int
    latest: str


class RunUse(NamedTuple):
    """One use of a lesson, or of the notes on a task.

    The record of a use contains it as `data["index"]`, and its key begins with the subject and a slash.
    """

    subject: str
    """The lesson, or the task of the notes."""
    run_id: str
    """The run that used it; empty for a use by a person."""
    at: datetime
    outcome: str = ""
    """The result, in the vocabulary of lessons or of notes."""
    version: int | None = None
    """Version of the note."""
    score: float | None = None
    """Score of the run."""

    def to_data(self) -> list[Any]:
        """The use in the form of its record."""
        return [*self[:2], microseconds(self.at), *self[3:]]


@dataclass(frozen=True, slots=True)
class Expense(Spent):
    """Usage of one cycle of an agent, or of one note on a run; `data["index"]` of its record."""

    at: datetime
    run_id: str = ""

    def to_data(self) -> list[Any]:
        """The expense in the form of its record."""
        return [microseconds(self.at), self.run_id, *(getattr(self, name) for name in _SPENT_COLUMNS)]

    @classmethod
    def of(cls, data: Sequence[Any]) -> Self:
        """Read an expense from the data of its record."""
        at, run_id, *used = data
        return cls(time_of(at), run_id, **dict(zip(_SPENT_COLUMNS, used, strict=True)))


class ExpenseGroup(NamedTuple):
    """A day (UTC) of expenses, and the agent, model and task of their runs; empty without a run."""

    day: date
    agent: str = ""
    model: str = ""
    task: str = ""


@dataclass(frozen=True, slots=True)
class RunQuery:
    """A query for the runs that meet every condition; raises `ConfigError` for an unknown column."""

    where: Mapping[str, Scalar | date | tuple[Scalar, ...]] = field(default_factory=dict[str, Any])
    """The value of each column, or a tuple of allowed values."""
    since: datetime | None = None
    """The earliest start of a run."""
    prefixes: tuple[str, ...] = ()
    """Allowed prefixes of run ids."""

    def __post_init__(self) -> None:
        for column in self.where:
            if column not in _QUERIED:
                raise ConfigError(f"Runs have no column {column!r}; {nearest(column, _QUERIED)}")

    def values(self, column: str) -> tuple[Any, ...]:
        """The allowed values of a column."""
        value = self.where[column]
        return value if isinstance(value, tuple) else (value,)


ALL_RUNS: Final = RunQuery()


class RunIndex:
    """Query the runs of a store, their uses of lessons and notes, and expenses by columns.

    Each record contains its columns as `data["index"]`. SQLite and PostgreSQL write them to separate tables
    in the transaction that writes the record, so the two never disagree. `ask` executes a statement that both
    understand, with values as `:name` parameters, and returns the rows. Every method raises `StoreError` if
    the store can't be read.
    """

    def __init__(
        self, space: str, ask: Callable[[str, dict[str, Any]], Awaitable[Sequence[Sequence[Any]]]]
    ) -> None:
        self._space = space
        self._ask = ask

    async def find(
        self, query: RunQuery = ALL_RUNS, *, after: RunRow | Record | None = None, limit: int | None = None
    ) -> list[RunRow]:
        """List runs, the newest first.

        `after` is the last run of the previous page: its row, or a record with its id and creation time.
        """
        condition, values = self._condition(query)
        if after is not None:
            at, run_id = after.created_at or _EPOCH, after.run_id if isinstance(after, RunRow) else after.key
            condition += " AND (created_at, run_id) < (:at, :after)"
            values |= {"at": microseconds(at), "after": run_id}
        columns = ", ".join(RUN_COLUMNS)
        sql = f"SELECT {columns} FROM runs WHERE {condition} ORDER BY created_at DESC, run_id DESC"  # noqa: S608 (made of constants)
        if limit is not None:
            sql += " LIMIT :limit"
            values["limit"] = limit
        return _readable(_row, await self._ask(sql, values), "runs", _damaged_row)

    async def count(self, by: GroupBy, query: RunQuery = ALL_RUNS) -> dict[Any, Count]:
        """Count runs by the values of a column: cheaper than `sum`."""
        groups = await self._groups(by, query, "count(*), max(run_id)")
        return {value: Count(*columns) for value, columns in groups.items()}

    async def sum(self, by: GroupBy, query: RunQuery = ALL_RUNS) -> dict[Any, Totals]:
        """Add up runs by the values of a column.

        `day` is the date (UTC) on which a run began. By `role`, a run counts once for each role, with that
        role's usage; by `role_model`, once for each model that has a role. Unfinished runs have neither.
        Raises `ConfigError` for a column that runs can't be grouped by.
        """
        groups = await self._groups(by, query, _SPENT if by in get_args(Facet) else f"{_SPENT}, {_LATER}")
        return {value: Totals(*columns) for value, columns in groups.items()}

    async def shares_of_latest(self, facet: str, query: RunQuery, runs: int) -> list[RunShare]:
        """Shares with a facet in the latest runs, the newest run first; `runs` limits their number."""
        condition, values = self._condition(query)
        rows = await self._ask(_LATEST_SHARES.format(condition), values | {"limit": runs, "facet": facet})
        kinds = ("str", "str", "str", "int", "int", "float", "bool")

        def share(row: Sequence[Any]) -> RunShare:
            return RunShare(*map(_from_column, row, kinds))

        return _readable(share, rows, "run_shares")

    async def uses(
        self, kind: str, subject: str, *, outcome: str | None = None, limit: int | None = None
    ) -> list[RunUse]:
        """List the uses of a lesson or note, the latest first, optionally only those with an outcome."""
        values: dict[str, Any] = {"space": self._space, "kind": kind, "subject": _to_column(subject)}
        kinds = {name: kind for name, kind in _USES.columns.items() if name != "subject"}
        sql = f"SELECT {', '.join(kinds)} FROM uses WHERE space = :space"  # noqa: S608 (made of constants)
        sql += " AND kind = :kind AND subject = :subject"
        if outcome is not None:
            sql += " AND outcome = :outcome"
            values["outcome"] = _to_column(outcome)
        sql += " ORDER BY at DESC, run_id DESC"
        if limit is not None:
            sql += " LIMIT :limit"
            values["limit"] = limit

        def use(row: Sequence[Any]) -> RunUse:
            return RunUse(subject, *map(_from_column, row, kinds.values()))

        return _readable(use, await self._ask(sql, values), "uses")

    async def count_uses(
        self, kind: str, outcomes: Sequence[str] = (), *, prefix: str = ""
    ) -> dict[str, tuple[int, ...]]:
        """Count the uses of each subject that begins with `prefix`: by runs, then with each outcome."""
        values: dict[str, Any] = {"space": self._space, "kind": kind}
        values |= {f"outcome_{number}": _to_column(outcome) for number, outcome in enumerate(outcomes)}
        conditions = ["run_id <> ''", *(f"outcome = :outcome_{number}" for number in range(len(outcomes)))]
        counts = ", ".join(f"count(CASE WHEN {condition} THEN 1 END)" for condition in conditions)
        sql = f"SELECT subject, {counts} FROM uses WHERE space = :space AND kind = :kind"  # noqa: S608 (made of constants)
        if prefix:
            sql += " AND subject >= :first AND subject < :beyond"
            first = _to_column(prefix)
            values |= {"first": first, "beyond": after_all_with(first)}
        rows = await self._ask(f"{sql} GROUP BY subject", values)

        def count(row: Sequence[Any]) -> tuple[str, tuple[int, ...]]:
            return _from_column(row[0], "str"), tuple(row[1:])

        return dict(_readable(count, rows, "uses"))

    async def expenses(self, kind: str, since: datetime | None = None) -> dict[ExpenseGroup, Totals]:
        """Add up the expenses of `CYCLE` or `NOTE_COST` records by day, and by agent, model and task."""
        condition = "expenses.space = :space AND kind = :kind"
        values: dict[str, Any] = {"space": self._space, "kind": kind}
        if since is not None:
            condition += " AND at >= :since"
            values["since"] = microseconds(since)
        rows = await self._ask(f"{_SUM_EXPENSES} WHERE {condition} GROUP BY 1, 2, 3, 4", values)
        kinds = ("date", "str", "str", "str")

        def group(row: Sequence[Any]) -> tuple[ExpenseGroup, Totals]:
            return ExpenseGroup(*map(_from_column, row[:4], kinds)), Totals(*row[4:])

        return dict(_readable(group, rows, "expenses"))

    async def problems(self) -> list[str]:
        """One sentence each for runs without columns, columns without runs, and damaged columns."""
        values = {"space": self._space, "run": RUN}
        columns = ", ".join(RUN_COLUMNS)
        rows = await self._ask(f"SELECT {columns} FROM runs WHERE space = :space", {"space": self._space})  # noqa: S608 (made of constants)
        ((without,),) = await self._ask(_WITHOUT_COLUMNS, values)
        ((stale,),) = await self._ask(_STALE_COLUMNS, values)
        problems: list[str] = []
        if without:
            problems.append(f"The index lacks {counted(without, 'run')}, which no list shows.")
        if stale:
            problems.append(f"The index lists {counted(stale, 'run')} without a record.")
        problems += [damage for row in rows if (damage := _damage(_row, row, "runs"))]
        return problems

    async def _groups(self, by: GroupBy, query: RunQuery, columns: str) -> dict[Any, Sequence[Any]]:
        """Columns of each group by its value."""
        groups = (*get_args(Column), *get_args(Facet))
        if by not in groups:
            raise ConfigError(f"Runs can't be grouped by {by!r}; {nearest(by, groups)}")
        condition, values = self._condition(query)
        table, value = "runs", str(by)
        if by in get_args(Facet):
            table, value = "run_shares", "value"
            if query.prefixes or not set(query.where) <= set(_OF_SHARES):
                runs = f"SELECT run_id FROM runs WHERE {condition}"  # noqa: S608 (made of constants)
                condition = f"space = :space AND run_id IN ({runs})"
            condition += " AND facet = :facet"
            values["facet"] = by
        sql = f"SELECT {value}, {columns} FROM {table} WHERE {condition} GROUP BY {value}"  # noqa: S608 (made of constants)
        kind = _QUERIED.get(by, "str")

        def group(row: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
            return _from_column(row[0], kind), row[1:]

        return dict(_readable(group, await self._ask(sql, values), table))

    def _condition(self, query: RunQuery) -> tuple[str, dict[str, Any]]:
        """The SQL condition of a query, and its values."""
        parts, values = ["space = :space"], dict[str, Any](space=self._space)
        if query.since is not None:
            parts.append("created_at >= :since")
            values["since"] = microseconds(query.since)
        for column in query.where:
            allowed = query.values(column)
            # Ids are the keys of records, which every database takes as they are.
            converted = allowed if column == "run_id" else map(_to_column, allowed)
            parameters = {f"{column}_{at}": value for at, value in enumerate(converted) if value is not None}
            values |= parameters
            any_of = [f"{column} IN ({', '.join(f':{name}' for name in parameters)})"] if parameters else []
            any_of += [f"{column} IS NULL"] if len(parameters) < len(allowed) else []
            parts.append(f"({' OR '.join(any_of) or '1 = 0'})")
        if query.prefixes:
            numbers = range(len(query.prefixes))
            any_of = [f"(run_id >= :first_{at} AND run_id < :beyond_{at})" for at in numbers]
            parts.append(f"({' OR '.join(any_of)})")
            for at, prefix in enumerate(query.prefixes):
                values |= {f"first_{at}": prefix, f"beyond_{at}": after_all_with(prefix)}
        return " AND ".join(parts), values


@runtime_checkable
class IndexedStore(Store, Protocol):
    """A `Store` that holds the columns of its runs in tables."""

    def run_index(self) -> RunIndex:
        """The index of its runs."""
        ...


def run_index(store: Store) -> RunIndex:
    """The index of a store's runs; without tables in the store, each query reads all of its records."""
    if isinstance(store, IndexedStore):
        return store.run_index()

    async def ask(sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        from redraft.stores.sqlite import index_of  # noqa: PLC0415 (it imports this module)

        records = [record for kind in INDEXED for record in await store.find(kind)]
        with closing(index_of(records)) as connection:
            return connection.execute(sql, values).fetchall()

    return RunIndex("", ask)


def writes(space: str, row: Row, data: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Statements, with `:name` for each value, that write the columns of an indexed record."""
    key = {"space": space, "kind": row.kind, "key": row.key}
    if row.kind != RUN:
        table = _TABLES[row.kind]
        statements = [(table.delete, key)]
        if (entry := table.read(data)) is not None:
            values = zip(table.columns.items(), entry.to_data(), strict=True)
            columns = {name: _to_column(value, kind) for (name, kind), value in values}
            statements.append((table.put, columns | key))
        return statements
    run = RunRow.of(row.key, time_of(row.created_at), data)
    columns = {name: _to_column(getattr(run, name)) for name in _COLUMNS}
    columns |= {"created_at": row.created_at}
    criteria = json_text({name: list(scores) for name, scores in run.criteria.items()})
    of_shares = {name: columns[name] for name in _OF_SHARES}
    shares = [{name: _to_column(getattr(share, name)) for name in _SHARE} for share in run.shares]
    key = {"space": space, "run_id": row.key}
    return [
        (_PUT_RUN, columns | key | {"criteria": criteria}),
        (_DELETE_SHARES, key),
        *((_PUT_SHARE, share | of_shares | key) for share in shares),
    ]


def removals(space: str, kind: str, key: str) -> list[tuple[str, dict[str, Any]]]:
    """Statements that remove the columns of an indexed record."""
    if kind != RUN:
        return [(_TABLES[kind].delete, {"space": space, "kind": kind, "key": key})]
    of_run = {"space": space, "run_id": key}
    return [(_DELETE_SHARES, of_run), (_DELETE_RUN, of_run)]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "key": (str,),
    "bool": (bool,),
    "int": (int,),
    "time": (int,),
    "int | None": (int, type(None)),
    "float": (float, int),
    "float | None": (float, int, type(None)),
}
_SPENT_COLUMNS = {column.name: str(column.type) for column in fields(Spent)}
_FIELDS = {
    column.name: str(column.type)
    for column in fields(RunRow)
    if column.name not in ("shares", *_SPENT_COLUMNS)
}
RUN_COLUMNS = {**_FIELDS, **_SPENT_COLUMNS}
"""The columns of a run, each with its kind."""
_COLUMNS = {name: kind for name, kind in RUN_COLUMNS.items() if kind in _KINDS and name != "run_id"}
_SHARE = {"facet": "str", "value": "str", **_SPENT_COLUMNS}
"""The columns of a share, in the order in which records list them."""
_OF_SHARES = ("created_at", "status", "is_inner")
"""Columns of a run that its shares repeat, so that the usual filters need no join."""
_QUERIED = {"run_id": "key", **_COLUMNS, "day": "date"}
"""Columns that a query may name, each with its kind."""


LARGEST = 2**63
"""The numbers of a column are smaller, since its integers have 64 bits."""


def _checked(value: Any, kind: str) -> Any:
    """Convert a value to the type of a column; raises `TypeError` for a value of another kind."""
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise TypeError(f"{value!r} is no {kind}")
    if kind == "time":
        return time_of(value)
    if isinstance(value, int | float) and not abs(value) < LARGEST:
        raise TypeError(f"{value!r} is no number that a database can hold")
    return float(value) if kind.startswith("float") and value is not None else value


def _named(values: Iterable[Any], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Name the values that a record lists, and check them."""
    return {name: _checked(value, kinds[name]) for name, value in zip(kinds, values, strict=True)}


def _to_column(value: Any, kind: str = "") -> Any:
    """Convert a value for the database; text is escaped as in JSON, since some reject NUL and surrogates.

    A `key` stays as it is, to be compared with keys of records; it is empty if it can't be the id of a run.
    """
    if kind == "key":
        return value if value.isprintable() else ""
    if isinstance(value, str):
        return json_text(value)[1:-1]
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    return int(value) if isinstance(value, bool) else value


_IN_DATABASE = {**_KINDS, "bool": (int,), "date": (int,)}


def _from_column(value: Any, kind: str) -> Any:
    if type(value) not in _IN_DATABASE[kind]:  # SQLite puts anything into any column
        raise TypeError(f"{value!r} is no {kind}")
    read = _FROM_DATABASE.get(kind)
    return value if read is None else read(value)


def _unescaped(text: str) -> str:
    return json.loads(f'"{text}"') if "\\" in text else text


_FROM_DATABASE: Mapping[str, Callable[[Any], Any]] = {
    "str": _unescaped,
    "date": lambda days: _EPOCH.date() + timedelta(days=days),
    "time": time_of,
    "bool": bool,
}


def _row(values: Sequence[Any]) -> RunRow:
    columns = dict(zip(RUN_COLUMNS, values, strict=True))
    run_id, created_at = _from_column(columns["run_id"], "key"), _from_column(columns["created_at"], "time")
    read = {name: _from_column(columns[name], kind) for name, kind in _COLUMNS.items()}
    criteria = {
        name: (_checked(first, "float | None"), _checked(best, "float | None"))
        for name, (first, best) in json.loads(columns["criteria"]).items()
    }
    return RunRow(run_id, created_at, criteria=criteria, **read)


def _damaged_row(values: Sequence[Any]) -> RunRow | None:
    """A row with only the id and the start of a run that can't be read; None without an id."""
    run_id, created_at = values[:2]
    if not isinstance(run_id, str):
        return None
    try:
        return RunRow(run_id, _from_column(created_at, "time"), unpriced=True)
    except _UNREADABLE:
        return RunRow(run_id, _EPOCH, unpriced=True)


_UNREADABLE = (TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""Errors of reading a damaged row."""
T = TypeVar("T")


def _readable(
    read: Callable[[Sequence[Any]], T],
    rows: Iterable[Sequence[Any]],
    table: str,
    instead: Callable[[Sequence[Any]], T | None] = lambda _: None,
) -> list[T]:
    """Read the rows of a table; each damaged row is logged once, and left out or replaced."""
    values: list[T] = []
    for row in rows:
        try:
            values.append(read(row))
        except _UNREADABLE:
            warn_once(_damage(read, row, table))
            if (replacement := instead(row)) is not None:
                values.append(replacement)
    return values


def _damage(read: Callable[[Sequence[Any]], object], row: Sequence[Any], table: str) -> str:
    """A sentence that says what is wrong with a row; empty if it can be read."""
    try:
        read(row)
    except _UNREADABLE as error:
        what = str(error).rstrip(".")
        return (
            f"A row of the index {table!r} is damaged, that of {row[0]!r}: {what}. "
            "The record is not affected; restore a backup to have it listed and counted again."
        )
    return ""


def _insert(table: str, names: Iterable[str]) -> str:
    columns = ("space", *names)
    values = ", ".join(f":{name}" for name in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"  # noqa: S608 (made of constants)


def _sums(columns: Mapping[str, str]) -> str:
    # In PostgreSQL, the type of a sum depends on the type of the column; it may be numeric.
    return ", ".join(f"CAST(coalesce(sum({column}), 0) AS {kind})" for column, kind in columns.items())


_BIG, _DOUBLE = "bigint", "double precision"
_CALLS = {"requests": _BIG, "failed_requests": _BIG, "input_tokens": _BIG, "output_tokens": _BIG}
_SPENT = f"count(*), {_sums({**_CALLS, 'known_usd': _DOUBLE, 'unpriced': _BIG})}"
_LATER = _sums({"later_tokens": _BIG, "later_usd": _DOUBLE, "later_unpriced": _BIG})
_PUT_RUN = (
    f"{_insert('runs', RUN_COLUMNS)} ON CONFLICT (space, run_id) DO UPDATE SET "
    f"{', '.join(f'{name} = excluded.{name}' for name in RUN_COLUMNS if name != 'run_id')}"
)
_PUT_SHARE = _insert("run_shares", ("run_id", *_SHARE, *_OF_SHARES))
_LATEST_SHARES = """
SELECT agent, model, value, part.input_tokens, part.output_tokens, part.known_usd, part.unpriced
FROM (SELECT space AS in_space, run_id AS of_run, created_at AS began, agent, model FROM runs
      WHERE {} ORDER BY created_at DESC, run_id DESC LIMIT :limit) AS latest
JOIN run_shares AS part ON part.space = in_space AND part.run_id = of_run AND facet = :facet
ORDER BY began DESC, of_run DESC, value DESC"""
_WITHOUT_COLUMNS = """
SELECT count(*) FROM records WHERE space = :space AND kind = :run
    AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.space = records.space AND runs.run_id = records.key)"""
_STALE_COLUMNS = """
SELECT count(*) FROM runs WHERE space = :space AND NOT EXISTS (
    SELECT 1 FROM records WHERE records.space = runs.space AND kind = :run AND records.key = runs.run_id)"""
_DELETE_RUN = "DELETE FROM runs WHERE space = :space AND run_id = :run_id"
_DELETE_SHARES = "DELETE FROM run_shares WHERE space = :space AND run_id = :run_id"


class _Table(NamedTuple):
    """A table with a row for each record of some kinds, whose `data["index"]` lists its columns."""

    row: Callable[..., Any]
    columns: Mapping[str, str]
    put: str
    delete: str

    @classmethod
    def of(cls, name: str, row: Callable[..., Any], columns: Mapping[str, str]) -> Self:
        delete = f"DELETE FROM {name} WHERE space = :space AND kind = :kind AND key = :key"  # noqa: S608 (made of constants)
        return cls(row, columns, _insert(name, ("kind", "key", *columns)), delete)

    def read(self, data: Mapping[str, Any]) -> Any:
        """Read the row from the data of its record; None if the data can't be read."""
        try:
            return self.row(**_named(data["index"], self.columns))
        except (DamagedRecordError, KeyError, TypeError, ValueError, OverflowError):
            return None


_USES = _Table.of(
    "uses",
    RunUse,
    dict(zip(RunUse._fields, ("str", "str", "time", "str", "int | None", "float | None"), strict=True)),
)
_EXPENSES = _Table.of(
    "expenses",
    Expense,
    {"at": "time", "run_id": "key", **_SPENT_COLUMNS},
)
_TABLES = {LESSON_USE: _USES, NOTE_USE: _USES, CYCLE: _EXPENSES, NOTE_COST: _EXPENSES}
INDEXED = (RUN, *_TABLES)
"""The kinds of the records that have columns."""


def columns_of(table: str, types: Mapping[str, str]) -> str:
    """The columns of a table of the index in SQL; `types` maps kinds to a database's types."""
    of_key = {"space": "key", "kind": "key", "key": "key"}
    columns = {
        "runs": {"space": "key", **RUN_COLUMNS, "created_at": "int", "criteria": "str", "run_id": "key"},
        "run_shares": {
            "space": "key",
            "run_id": "key",
            "created_at": "int",
            "status": "str",
            "is_inner": "bool",
            **_SHARE,
        },
        "uses": {**of_key, **_USES.columns, "subject": "key", "run_id": "key"},
        "expenses": {**of_key, **_EXPENSES.columns},
    }[table]
    nullable = " | None"
    return ", ".join(
        f"{name} {types[kind.removesuffix(nullable)]}{'' if kind.endswith(nullable) else ' NOT NULL'}"
        for name, kind in columns.items()
    )


_OF_EXPENSES = {f"expenses.{name}": kind for name, kind in _CALLS.items()}
_SUM_EXPENSES = f"""
SELECT at / 86400000000, coalesce(agent, ''), coalesce(model, ''), coalesce(task, ''),
    count(*), {_sums({**_OF_EXPENSES, "expenses.known_usd": _DOUBLE, "expenses.unpriced": _BIG})}
FROM expenses LEFT JOIN runs ON runs.space = expenses.space AND runs.run_id = expenses.run_id"""  # noqa: S608 (made of constants)
