"""One agent's optimizer. It knows no algorithm: it takes a loss, and steps."""

from typing import Any

import torch
from torch import Tensor

from hacpo.models.policy import Policy
from hacpo.settings import UpdateConfig


class Learner:
    """AdamW over a policy's weights."""

    def __init__(self, policy: Policy, config: UpdateConfig) -> None:
        self.policy = policy
        self.version = 0
        """Completed steps of these weights."""
        self._max_grad_norm = config.max_grad_norm
        self._named = policy.weights.trained
        self._optimizer = torch.optim.AdamW(
            self._named.values(),
            lr=config.learning_rate,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.learning_rate = config.learning_rate

    def backward(self, loss: Tensor) -> None:
        """Add a micro-batch's gradient; a loss without a graph (no row counts) adds nothing."""
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]

    def optim_step(self) -> tuple[float, bool]:
        """Clip, step, clear.

        Returns:
            gradient norm before clipping, and whether the step was taken: a norm that is not
            finite leaves weights and optimizer as they were, and the caller counts it.
        """
        for parameter in self._named.values():
            if parameter.grad is None:
                # An update without signal still steps: moments decay as they would with zeros.
                parameter.grad = torch.zeros_like(parameter)
        norm = float(torch.nn.utils.clip_grad_norm_(self._named.values(), self._max_grad_norm))
        taken = norm < float("inf")
        if taken:
            self._optimizer.step()
            self.policy.weights.publish()
        self._optimizer.zero_grad(set_to_none=True)
        return norm, taken

    def move(self, device: torch.device) -> None:
        """Put weights and optimizer elsewhere, e.g. while another agent needs the device."""
        self.policy.weights.move(device)
        for state in self._optimizer.state.values():
            for key, value in state.items():
                state[key] = value.to(device)  # the count of steps too: the step is one kernel

    def state(self) -> dict[str, Tensor]:
        """The optimizer's state as named tensors, for safetensors."""
        tensors = {}
        for name, parameter in self._named.items():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                tensors[f"{key}.{name}"] = value.detach().cpu().contiguous()
        return tensors

    def load_state(self, tensors: dict[str, Tensor], version: int) -> None:
        state: dict[Any, dict[str, Tensor]] = {}
        for key_name, value in tensors.items():
            key, _, name = key_name.partition(".")
            parameter = self._named[name]
            state.setdefault(parameter, {})[key] = value.to(parameter.device)
        self._optimizer.state.update(state)
        self.version = version
