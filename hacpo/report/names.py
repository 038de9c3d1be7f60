"""What a cell calls the agents of a sweep.

Cells are shared by the identity of their models, so a cell that another sweep began may call the
same model by another name, or even call another model by this sweep's name.
"""

from collections.abc import Mapping, Sequence

from hacpo.registry import AgentView, CellView


def identities(models: Mapping[str, str], cells: Sequence[CellView]) -> dict[str, str]:
    """Agent of the sweep -> model identity, as far as the sweep's cells tell.

    Args:
        models: agent of the sweep -> model, as its config names it.
        cells: of the sweep.
    """
    known: dict[str, str] = {}
    for cell in cells:
        members = cell.combination.split("+")
        for agent in cell.agents.values():
            for name in members:
                if models.get(name) == agent.model:
                    known.setdefault(name, agent.identity)
    # A cell of one agent leaves no doubt, whatever its model was called when it began.
    for cell in cells:
        if len(cell.agents) == 1:
            known[cell.combination] = next(iter(cell.agents.values())).identity
    return known


def names_in(cell: CellView, known: Mapping[str, str]) -> dict[str, AgentView]:
    """Agent of the sweep -> the same agent as the cell has it.

    Args:
        cell: with the combination that the sweep gives it.
        known: from `identities`.
    """
    left = dict(cell.agents)
    found: dict[str, AgentView] = {}
    members = cell.combination.split("+")
    for name in sorted(members, key=lambda name: name not in cell.agents):
        same = [n for n, agent in left.items() if agent.identity == known.get(name)]
        if same:
            found[name] = left.pop(name if name in same else min(same))
    for name in members:
        if name not in found and left:
            found[name] = left.pop(name if name in left else min(left))
    return found
