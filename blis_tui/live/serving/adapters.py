"""The LoRA adapters that clients may name as their model, loaded and unloaded as with vLLM's endpoints.

That only says which names are served. When an instance loads an adapter, and what that takes, is the simulation's
business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.live.serving.fields import RefusedError, body_of, flag_in, name_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.model import Experiment


class Adapters:
    """The adapters of an experiment, all of which are loaded at first.

    They are those that the workload's clients ask for, and those with a rank in ``engine.lora``.

    Args:
        experiment: the serving configuration.

    Attributes:
        loaded: the loaded ones, with the model that each adapts.
    """

    def __init__(self, experiment: Experiment) -> None:
        pools = [pool for pool in experiment.pools if pool.engine.lora is not None]
        self._known: dict[str, str] = {}
        for client in experiment.workload.clients if pools else ():
            names = () if client.adapters is None else client.adapters.names
            self._known |= dict.fromkeys(names, client.model or pools[0].model.name)
        for pool in pools:
            for name in () if pool.engine.lora is None else pool.engine.lora.ranks:
                self._known.setdefault(name, pool.model.name)
        self.loaded: Mapping[str, str] = dict(self._known)

    def load(self, document: object) -> str:
        """Load the adapter that a body names; return what to tell the client.

        Raises:
            RefusedError: the experiment has no such adapter, or it is loaded already.
        """
        body = body_of(document)
        name, path = name_in(body, "lora_name"), name_in(body, "lora_path")
        if not name or not path:
            raise RefusedError(400, "Both 'lora_name' and 'lora_path' must be provided.", "lora_path" if name else None)
        if name not in self._known:
            has = ", ".join(self._known) if self._known else "none"
            has = has if len(has) <= 200 else f"{len(self._known):,}"
            raise RefusedError(404, f"No adapter found for '{name}': the experiment has {has}", "lora_name")
        if name in self.loaded and not flag_in(body, "load_inplace"):
            message = f"The lora adapter '{name}' has already been loaded. If you want to load the adapter in place,"
            raise RefusedError(400, f"{message} set 'load_inplace' to True.", "lora_name")
        self.loaded = {**self.loaded, name: self._known[name]}
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload(self, document: object) -> str:
        """Unload the adapter that a body names; return what to tell the client.

        Raises:
            RefusedError: it is not loaded.
        """
        name = name_in(body_of(document), "lora_name")
        if not name:
            raise RefusedError(400, "'lora_name' needs to be provided to unload a LoRA adapter.", "lora_name")
        if name not in self.loaded:
            raise RefusedError(404, f"The lora adapter '{name}' cannot be found.", "lora_name")
        self.loaded = {other: model for other, model in self.loaded.items() if other != name}
        return f"Success: LoRA adapter '{name}' removed successfully."
