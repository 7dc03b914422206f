"""Tools that a client offers, and which of them the answer must call."""

from __future__ import annotations

import json
from reprlib import repr as brief
from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.live.serving.fields import RefusedError
from blis_tui.live.serving.forms import Form

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def as_listed(tool: Mapping[str, object]) -> str:
    """Return a tool as the prompt has it."""
    return json.dumps(tool, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Function:
    """A function that may be called.

    Attributes:
        name: its name.
        parameters: the JSON schema of its arguments.
        listed: it as the prompt has it.
    """

    name: str
    parameters: Mapping[str, object]
    listed: str

    @classmethod
    def of(cls, name: object, description: object, parameters: object, parameter: str) -> Function:
        """Return the function that a client describes in the parameter.

        Raises:
            RefusedError: it has no name, or no schema that is an object.
        """
        if not isinstance(name, str) or not name:
            raise RefusedError(400, "each function needs a name", parameter)
        if parameters is not None and not isinstance(parameters, dict):
            raise RefusedError(400, f"the parameters of `{name[:100]}` must be a JSON schema", parameter)
        about: dict[str, object] = {"name": name}
        about |= {"description": description} if isinstance(description, str) else {}
        about |= {} if parameters is None else {"parameters": parameters}
        return cls(name, parameters or {}, as_listed({"type": "function", "function": about}))


@dataclass(frozen=True, slots=True)
class Tools:
    """What a client offers, and what it makes of it.

    Attributes:
        functions: what can be called.
        others: tools that the server would run itself, as JSON; they are in the prompt, and never called.
        forced: the function that must be called; None = none must.
        named: whether the client has named it.
    """

    functions: Sequence[Function] = ()
    others: Sequence[str] = ()
    forced: Function | None = None
    named: bool = False

    def text(self) -> str:
        """Return what of them is in the prompt; empty = nothing."""
        lines = [*(function.listed for function in self.functions), *self.others]
        return "\n".join(["# Tools", "<tools>", *lines, "</tools>"]) if lines else ""

    def with_choice(self, choice: object) -> Tools:
        """Return them under a choice: ``none`` ignores them all, ``required`` forces a call of the first function.

        Raises:
            RefusedError: there is no such choice, or no function.
        """
        if choice == "none":
            return Tools()
        if choice == "auto":
            return self
        if choice != "required":
            message = f'`tool_choice` must be "none", "auto", "required" or a function, got {brief(choice)}'
            raise RefusedError(400, message, "tool_choice")
        if not self.functions:
            raise RefusedError(400, "`tool_choice` needs `tools` with a function", "tool_choice")
        return Tools(self.functions, self.others, self.functions[0])

    def naming(self, name: object) -> Tools:
        """Return them with a call of the function of that name.

        Raises:
            RefusedError: there is none.
        """
        forced = next((function for function in self.functions if function.name == name), None)
        if forced is None:
            raise RefusedError(400, f"`tool_choice` must name a function of `tools`, got {brief(name)}", "tool_choice")
        return Tools(self.functions, self.others, forced, named=True)

    def call(self) -> Form | None:
        """Return the call that the answer must be, with its required arguments, if it must be one.

        Raises:
            RefusedError: there are no arguments for it.
        """
        if self.forced is None:
            return None
        return Form.of({"type": "object", **self.forced.parameters}, "tools", self.forced.name)
