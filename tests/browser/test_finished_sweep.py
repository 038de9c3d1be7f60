"""What people see of a finished sweep, in the pages of a real MLflow and a real Prefect."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import yaml
from playwright.sync_api import Page, expect

from hacpo.registry import SweepView
from hacpo.tracking import curves_url
from tests.flows.test_grid import flow_run_of, follow, post, submit, sweep
from tests.servers import platform
from tests.tiny import tiny_pair

pytestmark = [pytest.mark.slow, pytest.mark.browser]

NAME = "browser"
METHODS = ["gspo_x2", "naive", "hacpo"]
CURVES = [
    *(f"{method} {agent}" for method in METHODS[:1] for agent in "ab"),
    *(f"{method} {agent} in a+b" for method in METHODS[1:] for agent in "ab"),
]
"""Of two seeds each."""

Keep = Callable[[Page, str], None]


@dataclass(frozen=True)
class Finished:
    view: SweepView
    flow_run: str
    prefect: str
    mlflow: str
    environment: dict[str, str]

    @property
    def curves(self) -> str:
        assert self.view.mlflow_experiment_url is not None
        return curves_url(self.view.mlflow_experiment_url)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """Servers, workers and a sweep of tiny models, three methods and two seeds, done."""
    folder = tmp_path_factory.mktemp("sweep")
    config = tiny_pair(folder) | {"name": NAME, "steps": 6}
    del config["method"], config["seed"]
    config["grid"] = {"combinations": [["a", "b"]], "methods": METHODS, "seeds": [0, 1]}
    (folder / "grid.yaml").write_text(yaml.safe_dump(config))
    with platform(tmp_path_factory.mktemp("platform")) as env:
        flow_run = flow_run_of(submit(env, "hacpo-grid", "-p", f"config={folder / 'grid.yaml'}"))
        followed = follow(env, flow_run)
        assert followed.returncode == 0, followed.stdout + followed.stderr
        yield Finished(
            view=sweep(env, NAME),
            flow_run=flow_run,
            prefect=env["PREFECT_API_URL"].removesuffix("/api"),
            mlflow=env["MLFLOW_TRACKING_URI"],
            environment=env,
        )


def test_two_clicks_from_mlflows_experiments_to_the_rewards_of_all_agents_and_methods(
    finished: Finished, page: Page, keep: Keep
) -> None:
    page.goto(f"{finished.mlflow}/#/experiments")
    page.get_by_text("Model training").click()  # remembered; MLflow is made for chats, too
    experiment = page.get_by_test_id("experiment-list-item-link").get_by_text(NAME, exact=True)
    expect(experiment).to_be_visible()
    keep(page, "mlflow-experiments")
    experiment.click()
    link = page.get_by_role("link", name="Rewards of all agents and methods")
    expect(link).to_be_visible()
    for cell in finished.view.cells:
        expect(page.get_by_role("link", name=cell.label, exact=True)).to_be_visible()
    keep(page, "mlflow-runs")
    with page.context.expect_page() as opened:
        link.click()
    check_rewards(opened.value)
    keep(opened.value, "mlflow-rewards")


def check_rewards(page: Page) -> None:
    """Its first chart shows a curve for each agent of each method, in a color of its own."""
    first = page.get_by_test_id("experiment-view-compare-runs-card").first
    expect(first.get_by_text("reward/mean", exact=True)).to_be_visible()
    for curve in CURVES:
        expect(first.get_by_text(f"{curve} (reward/mean)", exact=True)).to_be_visible()
        expect(page.get_by_text(f"Group: {curve}", exact=True)).to_be_attached()
    lines = first.locator(".scatterlayer .trace .js-line")
    expect(lines).not_to_have_count(0)
    colors = lines.evaluate_all("lines => lines.map(line => getComputedStyle(line).stroke)")
    assert len(set(colors) - {"rgb(0, 0, 0)"}) == len(CURVES)  # black are edges of bands
    sections = page.get_by_test_id("experiment-view-compare-runs-section-header")
    expect(sections.nth(1)).to_contain_text("eval/held_out")


def test_the_link_of_the_report_shows_curves_and_a_table_of_the_runs(
    finished: Finished, page: Page, keep: Keep
) -> None:
    page.goto(finished.curves)
    check_rewards(page)
    keep(page, "mlflow-rewards-link")


def test_an_agents_run_in_mlflow_tells_where_it_belongs_and_its_metrics(
    finished: Finished, page: Page, keep: Keep
) -> None:
    cell = next(cell for cell in finished.view.cells if cell.label == "hacpo a+b s0")
    run = cell.agents["b"].mlflow_run_id
    page.goto(f"{finished.view.mlflow_experiment_url}/{run}")
    expect(page.get_by_role("heading", name="hacpo a+b s0: b")).to_be_visible()
    expect(page.get_by_text("reward/mean", exact=True).first).to_be_visible()
    keep(page, "mlflow-run")


def test_a_run_of_the_grid_in_prefect_shows_its_name_its_state_and_what_it_queued(
    finished: Finished, page: Page, keep: Keep
) -> None:
    page.goto(f"{finished.prefect}/runs/flow-run/{finished.flow_run}")
    expect(page.get_by_text("Completed").first).to_be_visible()
    cells = len(finished.view.cells)
    expect(page.get_by_text(f"sweep {NAME}: {cells} cells: {cells} new")).to_be_visible()
    expect(page.get_by_text(f"sweep {NAME}", exact=True).first).to_be_visible()
    keep(page, "prefect-run")


def test_the_report_of_the_grid_in_prefect_is_a_table_with_links(
    finished: Finished, page: Page, keep: Keep
) -> None:
    artifact, *_ = post(
        f"{finished.prefect}/api/artifacts/filter",
        {"artifacts": {"key": {"any_": [f"report-{NAME}"]}}, "sort": "CREATED_DESC"},
    )
    page.goto(f"{finished.prefect}/artifacts/artifact/{artifact['id']}")
    report, cells = page.locator("table").first, page.locator("table").last
    for method in METHODS:
        expect(report.get_by_role("cell", name=method, exact=True).first).to_be_visible()
    expect(cells.get_by_role("row")).to_have_count(1 + len(finished.view.cells))
    link = page.get_by_role("link", name="Rewards of all agents and methods")
    expect(link).to_have_attribute("href", finished.curves)
    keep(page, "prefect-report")


def test_the_work_pool_in_prefect_is_ready(finished: Finished, page: Page, keep: Keep) -> None:
    page.goto(f"{finished.prefect}/work-pools/work-pool/hacpo-cells")
    expect(page.get_by_text("Ready").first).to_be_visible()
    expect(page.get_by_role("link", name=f"({NAME})")).not_to_have_count(0)
    keep(page, "prefect-work-pool")
