"""Controlling: pausing, cancelling, resuming and filling sweeps, their order, and their news."""

from dataclasses import dataclass

from sqlalchemy import func, select, update

from hacpo.errors import RegistryError
from hacpo.registry import states
from hacpo.registry.base import FAILED, RUN, QueueRow, SweepRow
from hacpo.registry.claim import next_cells, sweeps_in_turn
from hacpo.registry.database import Database
from hacpo.registry.models import Cell, Sweep, SweepCell
from hacpo.registry.submit import queue_again
from hacpo.registry.views import sweep_rows

FAILING = "failing"


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Something about a sweep that people have not been told."""

    sweep: SweepRow
    what: str
    """failing (its first failed cell), done, failed or cancelled."""


class Control:
    """What people do with sweeps that are there."""

    _database: Database

    def want(self, sweep: str, wanted: str) -> SweepRow:
        """Pause, cancel or resume a sweep; its running cells notice at their next step boundary.

        Args:
            sweep: name.
            wanted: run, pause or cancel.
        Returns:
            The sweep as it is now; one that was so already is left as it was.
        """
        with self._database.writing() as connection:
            found = states.sweep_id(connection, sweep)
            change = update(Sweep).where(Sweep.id == found, Sweep.wanted != wanted)
            connection.execute(change.values(wanted=wanted, told=None))
            return sweep_rows(connection, self._database.now(connection), Sweep.id == found)[0]

    def fill(self, sweep: str) -> int:
        """Queue exactly what is missing: failed cells, with all their attempts; done ones stay.

        A sweep that was paused or cancelled is wanted again.

        Returns:
            How many failed cells were queued.
        """
        with self._database.writing() as connection:
            self._database.one_writer(connection)
            now = self._database.now(connection)
            found = states.sweep_id(connection, sweep)
            failed = (
                select(Cell.id)
                .join(SweepCell)
                .where(SweepCell.sweep_id == found, states.state_at(now) == FAILED)
                .distinct()
            )
            cells = list(connection.execute(failed).scalars())
            queue_again(connection, cells, now)
            wanted = update(Sweep).where(Sweep.id == found).values(wanted=RUN, told=None)
            connection.execute(wanted)
        return len(cells)

    def set_priority(self, sweep: str, priority: int) -> None:
        """Larger is served first."""
        with self._database.writing() as connection:
            found = states.sweep_id(connection, sweep)
            connection.execute(update(Sweep).where(Sweep.id == found).values(priority=priority))

    def repair(self) -> None:
        """Fail cells whose last attempt vanished; others with a passed lease are claimed as is."""
        with self._database.writing() as connection:
            states.fail_exhausted(connection, self._database.now(connection))

    def queue(self, limit: int = 50) -> list[QueueRow]:
        """The next cells, in the order in which they would be claimed now."""
        rows: list[QueueRow] = []
        with self._database.reading() as connection:
            now = self._database.now(connection)
            for sweep in sweeps_in_turn(connection, now):
                cells = next_cells(sweep.id, now).limit(limit - len(rows))
                cells = cells.add_columns(Cell.key, SweepCell.label, Cell.gpus, Cell.attempts)
                for cell in connection.execute(cells):
                    rows.append(
                        QueueRow(
                            key=cell.key,
                            label=cell.label,
                            gpus=cell.gpus,
                            attempts=cell.attempts,
                            sweep=sweep.name,
                            owner=sweep.owner,
                            priority=sweep.priority,
                        )
                    )
                if len(rows) >= limit:
                    break
        return rows

    def queued_by_gpus(self) -> dict[int, int]:
        """gpus -> distinct cells that could be claimed now."""
        with self._database.reading() as connection:
            now = self._database.now(connection)
            served = [sweep.id for sweep in sweeps_in_turn(connection, now)]
            query = (
                select(Cell.gpus, func.count(Cell.id.distinct()))
                .join(SweepCell, SweepCell.cell_id == Cell.id)
                .where(SweepCell.sweep_id.in_(served))
                .where(states.is_claimable(now), states.is_ready(now))
                .group_by(Cell.gpus)
            )
            return {row[0]: row[1] for row in connection.execute(query)}

    def news(self) -> list[News]:
        """What people should hear, oldest sweep first; see `tell`."""
        with self._database.reading() as connection:
            told = {
                row.name: row.told for row in connection.execute(select(Sweep.name, Sweep.told))
            }
            found = []
            for row in reversed(sweep_rows(connection, self._database.now(connection))):
                what = row.state if not row.counts.unfinished else FAILING
                if what == FAILING and not row.counts.failed:
                    continue
                if told[row.name] not in (what, *(("done", FAILED) if what == FAILING else ())):
                    found.append(News(sweep=row, what=what))
        return found

    def tell(self, news: News) -> None:
        """Note that people were told."""
        with self._database.writing() as connection:
            told = update(Sweep).where(Sweep.name == news.sweep.name)
            connection.execute(told.values(told=news.what))

    def owned_by(self, owner: str) -> list[SweepRow]:
        """The sweeps of a person.

        Raises:
            RegistryError: nobody of that name has submitted any; with those who have.
        """
        with self._database.reading() as connection:
            rows = sweep_rows(connection, self._database.now(connection), Sweep.owner == owner)
            if not rows:
                known = connection.execute(select(Sweep.owner).distinct()).scalars()
                names = ", ".join(sorted(filter(None, known))) or "nobody yet"
                raise RegistryError(f"no sweep of owner {owner!r}; owners: {names}")
        return rows
