"""The page of an experiment as MLflow shows it first: a saved view, kept in the experiment's tags.

MLflow sorts the sections of its charts by name and draws ten runs. The view has rewards first, and
one curve for each agent of each method and combination: the mean of its seeds. A link opens it, and
so does the menu "Views" of the page.
"""

import json
from typing import Any
from urllib.parse import urlencode

CURVE = "hacpo.curve"
"""Tag of an agent's run: what is the same for all seeds, `hacpo a+b: a`."""
_KEY = "hacpo"
_NAME = "Rewards of all agents and methods"
_WRITTEN = 1767225600000  # milliseconds; any, but always the same
_COLUMNS = ("hacpo.method", "hacpo.combination", "hacpo.agent", "hacpo.seed")
_METRICS = ("reward/mean", "eval/held_out/avg_at_8")
_NEXT_SECTIONS = ("eval/held_out",)


def curve(method: str, combination: str, agent: str) -> str:
    """What a line in the charts is called.

    >>> curve("hacpo", "a+b", "a"), curve("gspo", "a", "a")
    ('hacpo a+b: a', 'gspo a')
    """
    return f"{method} {agent}" if agent == combination else f"{method} {combination}: {agent}"


def curves_url(runs_url: str) -> str:
    """The view of the experiment whose runs are listed at `runs_url`."""
    asked = urlencode({"viewStateShareKey": _KEY, "compareRunsMode": "CHART"})
    return f"{runs_url}?{asked}"


def experiment_tags(experiment: str) -> dict[str, str]:
    """Tags that an experiment with this id should have; MLflow knows what they mean."""
    link = curves_url(f"#/experiments/{experiment}/runs")
    return {
        "mlflow.experimentKind": "custom_model_development",  # else it is asked, or opens on traces
        "mlflow.note.content": f"[{_NAME}]({link})",
        f"mlflow.sharedViewState.{_KEY}": json.dumps(
            {
                "name": _NAME,
                "createdAt": _WRITTEN,
                "updatedAt": _WRITTEN,
                "state": json.dumps(_state()),
            }
        ),
    }


def _state() -> dict[str, Any]:
    """What "Save view" of MLflow 3.17 writes; what is absent is as MLflow has it by default."""
    rewards = _section("reward", columns=2, cardHeight=420)
    return {
        # Runs of cells hold no curves; what `--fresh` replaced is not shown. The search box takes a
        # filter without = for a run's name.
        "searchFilter": "tags.`hacpo.agent` != '' AND tags.`hacpo.superseded_by` IS NULL",
        "orderByKey": f"tags.`{CURVE}`",
        "orderByAsc": True,
        "selectedColumns": [
            *(f"tags.`{name}`" for name in _COLUMNS),
            *(f"metrics.`{name}`" for name in _METRICS),
        ],
        "groupBy": {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": "tag", "groupByData": CURVE}],
        },
        "runsHiddenMode": "SHOW_ALL",
        # Other metrics join as they come, in sections after these.
        "isAccordionReordered": True,
        "compareRunSections": [rewards, *map(_section, _NEXT_SECTIONS)],
        "compareRunCharts": [_line("reward/mean", rewards["uuid"])],
    }


def _section(name: str, **layout: int) -> dict[str, Any]:
    kept = {"display": True, "isReordered": False, "deleted": False, "isGenerated": True}
    return {"uuid": f"{_KEY}-{name}", "name": name, **kept, **layout}


def _line(metric: str, section: str) -> dict[str, Any]:
    return {
        "type": "LINE",
        "uuid": f"{_KEY}-{metric}",
        "metricSectionId": section,
        "metricKey": metric,
        "displayName": metric,
        "deleted": False,
        "isGenerated": True,
        "runsCountToCompare": 10,
        "xAxisKey": "step",
        "selectedXAxisMetricKey": "",
        "xAxisScaleType": "linear",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "scaleType": "linear",
        "range": {},
        "lineSmoothness": 0,
        "ignoreOutliers": False,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
    }
