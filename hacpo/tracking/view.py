"""The page of an experiment as MLflow shows it first: a saved view, kept in the experiment's tags.

MLflow sorts the sections of its charts by name and draws ten runs. The view has rewards first, and
one curve for each agent of each method and combination: the mean of its seeds. A link opens it, and
so does the menu "Views" of the page.
"""

import json
from typing import Any
from urllib.parse import urlencode

CURVE = "hacpo.curve"
"""Tag of an agent's run: what is the same for all seeds, `hacpo a in a+b`."""
_KEY = "hacpo"
_NAME = "Rewards of all agents and methods"
_WRITTEN = 1767225600000  # milliseconds; any, but always the same
_COLUMNS = ("hacpo.method", "hacpo.combination", "hacpo.agent", "hacpo.seed")
_METRICS = ("reward/mean", "eval/held_out/avg_at_8")


def curve(method: str, combination: str, agent: str) -> str:
    """What a line in the charts is called; its color follows from that.

    >>> curve("hacpo", "a+b", "a"), curve("gspo", "a", "a")
    ('hacpo a in a+b', 'gspo a')
    """
    return f"{method} {agent}" if agent == combination else f"{method} {agent} in {combination}"


def curves_url(runs_url: str) -> str:
    """The view of the experiment whose runs are listed at `runs_url`."""
    asked = {"viewStateShareKey": _KEY, "compareRunsMode": "CHART"}
    return f"{runs_url}?{urlencode(asked | {'workflowType': 'machine_learning'})}"


def experiment_tags(experiment: str) -> dict[str, str]:
    """Tags that an experiment with this id should have; MLflow knows what they mean."""
    link = curves_url(f"#/experiments/{experiment}/runs")
    return {
        "mlflow.experimentKind": "custom_model_development",  # else it is asked, or opens on traces
        "mlflow.note.content": f"Sweep of hacpo: [{_NAME}]({link})",
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
    first = _section("reward", columns=1, cardHeight=440)
    second = _section("eval/held_out")
    charts = [
        _line("reward/mean", first, lineSmoothness=60, useGlobalLineSmoothing=False),
        _line("reward/std", first),
        # Charts of other metrics are put before the first one whose metric is not less.
        _line("zzz", second, deleted=True),
    ]
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
        "isAccordionReordered": True,  # sections of other metrics follow these, unsorted
        "compareRunSections": [first, second],
        "compareRunCharts": charts,
    }


def _section(name: str, **layout: int) -> dict[str, Any]:
    kept = {"display": True, "isReordered": False, "deleted": False, "isGenerated": True}
    return {"uuid": f"{_KEY}-{name}", "name": name, **kept, **layout}


def _line(metric: str, section: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "type": "LINE",
        "uuid": f"{_KEY}-{metric}",
        "metricSectionId": section["uuid"],
        "metricKey": metric,
        "displayName": metric.partition("/")[2],
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
        **changes,
    }
