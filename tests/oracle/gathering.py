"""TensorRT-LLM's conditions for admission besides free blocks: room for whole answers, and other waiting prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .stops import Stop

if TYPE_CHECKING:
    from .instance import Instance, Job, Plan


class Gathering:
    """The conditions of one instance."""

    def __init__(self, instance: Instance) -> None:
        settings = instance.policy.batching.settings
        self._instance = instance
        self._answers = settings["capacity_scheduler_policy"] == "GUARANTEED_NO_EVICT"
        self._most = int(str(settings["batch_wait_timeout_iters"]))
        self._share = float(str(settings["batch_wait_max_tokens_ratio"]))
        self._plans = 0
        self.now = 0
        self.stop: Stop | None = None

    def _whole(self, job: Job) -> int:
        tokens = job.request.input_tokens + max(1, job.declared)
        return self._instance.pool.blocks_for(tokens - 1)

    def has_place(self, job: Job) -> bool:
        """Whether it and all running requests can run to the ends of their longest allowed answers."""
        if not self._answers or not self._here():
            return True
        return self.needed(job) <= len(self._instance.pool.free)

    def _here(self) -> list[Job]:
        """Running requests as far as plans know: an answer that ends early may still count."""
        return self._instance.running + self._instance.unsure(self.now)

    def needed(self, job: Job) -> int:
        """Blocks that it and all running requests still need to run to their ends."""
        missing = [self._whole(one) - len(one.table) for one in self._here()]
        return self._whole(job) + sum(missing)

    def waits(self, plan: Plan) -> bool:
        """Whether prompts wait for more prompts, while there are decodes to do."""
        instance = self._instance
        here = len(instance.running) + len(instance.ending)
        prompts = [job.target for job in instance.waiting[: max(0, instance.max_running - here)]]
        decodes = any(not job.prefilling for job in self._here())
        if not (self._most and self._share and decodes and prompts and plan.budget > 0):
            return False
        if not self.has_place(instance.waiting[0]):
            return False
        most = instance.engine.max_num_batched_tokens
        left = plan.budget
        for prompt in prompts:
            if prompt > left:
                break
            left -= prompt
        if self._plans == self._most or most - left >= self._share * most:
            self._plans = 0
            return False
        self.stop = Stop("gathering", self._most, self._plans)
        self._plans += 1
        return True
