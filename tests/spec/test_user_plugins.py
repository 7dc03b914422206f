"""What is said of code that offers policies, settings and panes: each thing that can be wrong with it, as recorded."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

from blis_tui.spec.user_plugins import load_plugins, offers_plugins
from tests.recorded import lasting, outcome

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

_HEAD: Final = """\
from dataclasses import dataclass
from blis_tui.plugins import ROUTING, pane, setting

"""
_POLICY: Final = """
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    worth: {type} = setting("What it is worth.", {more})

@ROUTING.plugin("mine", "Always the first.", Settings)
class Mine:
    rule = "The first."
    def __init__(self, settings): pass
    def choose(self, request, fleet, context): return 0, ""
    def state(self): return ()
"""
_LIMITS: Final = (
    *("minimum=0, maximum=9", "minimum=5", "maximum=4", "exclusiveMinimum=4", "exclusiveMaximum=4", "minimum='a'"),
    *("minimum=True", "nonsense=3", "pattern='[a-z]+'", "pattern='['", "pattern=3", "enum=['a', 4]", "enum=[5]"),
    *("minLength=1", "minItems='x'", "multipleOf=2"),
)
_DEFAULTS: Final = (("int", "4"), ("float", "4.0"), ("str", "'a'"), ("bool", "True"), ("int", "True"), ("int", "'4'"))
_PANES: Final = (
    "@pane('Mine', 'About.')\ndef one(view, room): return []",
    "@pane('', 'About.')\ndef one(view, room): return []",
    "@pane('x' * 20, 'About.')\ndef one(view, room): return []",
    "@pane('x' * 21, 'About.')\ndef one(view, room): return []",
    "@pane('a\\tb', 'About.')\ndef one(view, room): return []",
    "@pane('Mine', 'About.', key='m')\ndef one(view, room): return []",
    "@pane('Mine', 'About.', key='mm')\ndef one(view, room): return []",
    "@pane('Mine', 'About.', key=' ')\ndef one(view, room): return []",
    "@pane('Mine', 'A.')\ndef one(view, room): return []\n@pane('Mine', 'B.')\ndef two(view, room): return []",
)


def test_what_is_said_of_plug_ins(tmp_path: Path, file_regression: FileRegressionFixture) -> None:
    texts = [_POLICY.format(type="int", more=f"default=4, {limit}") for limit in _LIMITS]
    texts += [_POLICY.format(type=kind, more=f"default={given}") for kind, given in _DEFAULTS]
    texts += [_POLICY.format(type=kind, more="default=None") for kind in ("int | None", "str | None", "object", "list")]
    texts += [_POLICY.format(type="str", more=f"default='a', {one}") for one in ("pattern='b'", "enum=['a']")]
    texts += [_POLICY.format(type="int", more=more) for more in ("", "minimum=1")]
    texts += [_POLICY.format(type="int", more="default=4") * 2, *_PANES, "x = 1", "raise ValueError('no')"]
    texts += ["import nothing_of_that_name", "raise SystemExit(3)", "from blis_tui.plugins import NOTHING"]
    lines: list[str] = []
    for number, text in enumerate(texts):
        path = tmp_path / f"mine{number}.py"
        path.write_text(_HEAD + text, encoding="utf-8")
        registry = outcome(load_plugins, [path])
        result = (
            registry if isinstance(registry, str) else repr([(plugin.path, plugin.name) for plugin in registry.own])
        )
        lines.append(f"{number}: {lasting(result, tmp_path)}")
    for name in ("missing.py", "no-such-package", "x" * 90, "."):
        lines.append(f"{name}: {lasting(str(outcome(load_plugins, [name])), tmp_path).splitlines()[0]}")
        assert not offers_plugins(name)
    (tmp_path / "twice").mkdir()
    for here, there in product(("mine0.py", "mine16.py"), repeat=2):
        again = outcome(load_plugins, [tmp_path / here, tmp_path / there])
        lines.append(
            f"{here} {there}: {lasting(str(again) if isinstance(again, str) else repr(len(again.own)), tmp_path)}"
        )
    file_regression.check("\n".join(lines) + "\n", encoding="utf-8")
