"""Phase 1: every agent samples responses to the step's problems; its trainer weights score them.

The scores serve all learners as the source's log-probabilities and, detached, the learner's own
first update.
"""

import torch

from hacpo.agents import Agent
from hacpo.models.packing import micro_batches
from hacpo.models.policy import Policy
from hacpo.phases.grading import begin_grading
from hacpo.phases.pool import rollout_id
from hacpo.problems import step_problems
from hacpo.run import Run, open_run
from hacpo.types import Problem, Rollout, View


def rollout(run_id: str, step: int, agents: tuple[str, ...]) -> None:
    """Sample and score; an agent whose rollouts are on disk is done."""
    run = open_run(run_id)
    problems = problems_of(run, step)
    for name in agents:
        if not run.ledger.phase_file(step, "rollout", name).exists():
            with run.timed(name, "rollout"):
                rollouts = _sample(run, step, run.agents[name], problems)
                run.ledger.write_rollouts(step, name, rollouts)
            begin_grading(run, step, name, rollouts)


def problems_of(run: Run, step: int) -> list[Problem]:
    """The same problems for every agent and method of equal seed."""
    return step_problems(
        run.train_problems, step, run.config.update.problems_per_step, run.config.seed
    )


def _sample(run: Run, step: int, agent: Agent, problems: list[Problem]) -> list[Rollout]:
    config = run.config
    prompts = [agent.tokens.render(problem) for problem in problems]
    with agent.sampling() as engine:
        groups = engine.generate(
            prompts,
            config.responses_per_problem,
            temperature=config.rollout.temperature,
            max_tokens=config.rollout.max_response_tokens,
            seed=run.seed(step, agent.seed_key, "rollout"),
        )
    views, samples = [], {}
    for problem, prompt_ids, group in zip(problems, prompts, groups, strict=True):
        for index, sample in enumerate(group):
            identifier = rollout_id(step, agent.name, problem, index)
            samples[identifier] = sample
            views.append(
                View(
                    rollout_id=identifier,
                    problem_id=problem.id,
                    source=agent.name,
                    prompt_ids=prompt_ids,
                    response_ids=sample.token_ids,
                )
            )
    with agent.training():
        scores = score_rows(agent.policy, views, config.update.micro_tokens)
    return [
        Rollout(
            id=view.rollout_id,
            problem_id=view.problem_id,
            source=agent.name,
            token_ids=view.response_ids,
            text=samples[view.rollout_id].text,
            finish_reason=samples[view.rollout_id].finish_reason,
            sampler_logprobs=samples[view.rollout_id].logprobs,
            source_logprobs=scores[view.rollout_id][0],
            entropy=scores[view.rollout_id][1],
        )
        for view in views
    ]


@torch.no_grad()
def score_rows(
    policy: Policy, views: list[View], micro_tokens: int
) -> dict[str, tuple[list[float], float]]:
    """rollout id -> (log-probability per token, mean entropy in nats), no gradient."""
    scores: dict[str, tuple[list[float], float]] = {}
    for micro in micro_batches(views, micro_tokens, policy.pack_tokens):
        logprobs_BT, mask_BT, entropy_BT = policy.score(micro, with_entropy=True)
        lengths = mask_BT.sum(1).tolist()
        means = (entropy_BT.double().sum(1) / mask_BT.sum(1).clamp(min=1)).tolist()
        rows = logprobs_BT.tolist()
        for view, row, length, mean in zip(micro, rows, lengths, means, strict=True):
            scores[view.rollout_id] = (row[:length], mean)
    return scores
