"""Kustomizations: their resources with patches, images and numbers of replicas, as ``kubectl apply -k`` has them."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import located
from blis_tui.base.errors import SpecError
from blis_tui.base.source import Source, as_list, as_map, copied
from blis_tui.base.text import printable
from blis_tui.spec.foreign.pods import documents, number, place_in, values
from blis_tui.spec.read import read_source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from blis_tui.base.source import Json

NAMES: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_LISTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("containers", "initContainers", "volumes", "env", "imagePullSecrets"), "name"),
        "ports": "containerPort",
        "volumeMounts": "mountPath",
    }
)
"""Lists whose entries are merged by this key; all others are replaced."""
_MERGED: Final = re.compile(r"(?:apps/|batch/|autoscaling/)?v\d\w*")
"""Kinds that Kubernetes itself has; of others, all lists are replaced."""
_DEEPEST: Final = 20
_NOT_DONE: Final = ("helmCharts", "transformers", "generators", "replacements", "vars")


def kustomized(path: Path, depth: int = 0) -> tuple[list[dict[str, Json]], list[Source]]:
    """Return the documents that a kustomization makes, and the files they come from, those that change them first.

    Raises:
        InputError: a file cannot be read.
        SpecError: a base is elsewhere, a patch changes nothing that is there, or it cannot be applied.
    """
    return _Kustomization(path, depth).made()


class _Kustomization:
    def __init__(self, path: Path, depth: int) -> None:
        self._source = read_source(path)
        self._folder = path.parent
        self._depth = depth
        self._sources = [self._source]
        self._data: dict[str, Json] = next((one for one in documents(self._source) if one), {})

    def made(self) -> tuple[list[dict[str, Json]], list[Source]]:
        if self._depth > _DEEPEST:
            raise self._error(self._source.name, "kustomizations name each other", "")
        left = next((key for key in _NOT_DONE if self._data.get(key)), None)
        if left is not None:
            raise self._error(left, f"`{left}` is not followed", "import what `kustomize build` prints")
        found: list[dict[str, Json]] = []
        below: list[Source] = []
        for key in ("resources", "bases", "components"):
            for name in as_list(self._data.get(key)):
                more, read = self._resource(str(name))
                found, below = found + more, below + read
        found += [_generated(one) for one in as_list(self._data.get("configMapGenerator"))]
        found = [copied(one) for one in found]  # type: ignore[misc]
        for patch in self._patches():
            self._patch(as_map(patch), found)
        for image in map(as_map, as_list(self._data.get("images"))):
            _set_image(image, found)
        for replicas in map(as_map, as_list(self._data.get("replicas"))):
            for one in found:
                if as_map(one.get("metadata")).get("name") == replicas.get("name"):
                    as_map(one.setdefault("spec", {}))["replicas"] = number(replicas.get("count"), 0)
        return found, self._sources + below

    def _error(self, text: str, message: str, hint: str) -> SpecError:
        place = place_in(text, [self._source])
        return SpecError([located("BLIS1004", message, place, hint=hint or None)])

    def _resource(self, name: str) -> tuple[list[dict[str, Json]], list[Source]]:
        path = self._folder / name
        if not path.exists():
            elsewhere = "://" in name or "?ref=" in name or name.startswith(("github.com", "git@"))
            text = f"the base `{printable(name)}` is {'elsewhere' if elsewhere else 'not here'}"
            raise self._error(name, text, "put a copy of it beside, or import what `kustomize build` prints")
        if path.is_dir():
            inside = next((path / one for one in NAMES if (path / one).is_file()), None)
            if inside is None:
                raise self._error(name, f"the folder `{printable(name)}` has no kustomization.yaml", "")
            return kustomized(inside, self._depth + 1)
        source = read_source(path)
        return [one for one in documents(source) if one], [source]

    def _patches(self) -> list[Json]:
        """Return all patches in the form of ``patches``."""
        listed = as_list(self._data.get("patchesStrategicMerge"))
        merges: list[Json] = [{"patch": one} if "\n" in str(one) else {"path": one} for one in listed]
        return [*merges, *as_list(self._data.get("patchesJson6902")), *as_list(self._data.get("patches"))]

    def _patch(self, entry: dict[str, Json], found: list[dict[str, Json]]) -> None:
        source = self._source
        text = entry.get("patch")
        if text is None:
            path = self._folder / str(entry.get("path"))
            if not path.is_file():
                raise self._error(str(entry.get("path")), f"the patch `{printable(str(path))}` is not here", "")
            source = read_source(path)
            self._sources.insert(0, source)
            text = source.text
        inline = Source(source.name, str(text), source.directory)
        target = as_map(entry.get("target"))
        # A list of operations is no map, so it is put into one.
        operations = re.match(r"\s*(?:#.*\n\s*|---\s*)*(?:- |\[)", str(text)) is not None
        if operations:
            lines = [line for line in str(text).splitlines() if line.strip() != "---"]
            inline = Source(source.name, "list:\n" + "\n".join(f"  {line}" for line in lines), source.directory)
        for patch in [one for one in documents(inline) if one]:
            wanted = target or {"kind": patch.get("kind"), "name": as_map(patch.get("metadata")).get("name")}
            chosen = [one for one in found if _is(one, wanted)]
            shown = f"{wanted.get('kind') or ''} {wanted.get('name') or ''}".strip() or "anything"
            if not chosen:
                raise self._error(str(wanted.get("name") or ""), f"no resource is the {shown} of a patch", "")
            for one in chosen:
                if operations:
                    for operation in map(as_map, as_list(patch.get("list"))):
                        self._operate(one, operation)
                else:
                    made = merged(one, patch, named=_MERGED.fullmatch(str(one.get("apiVersion"))) is not None)
                    kept = {"kind": one.get("kind"), "metadata": one.get("metadata")}
                    one.clear()
                    one.update({**as_map(made), **(kept if target else {})})

    def _operate(self, document: dict[str, Json], operation: dict[str, Json]) -> None:
        """Apply one operation of a JSON patch."""
        path = str(operation.get("path") or "")
        what = str(operation.get("op"))
        steps = [one.replace("~1", "/").replace("~0", "~") for one in path.split("/")[1:]]
        wrong = self._error(path, f"the patch `{printable(what)} {printable(path)}` cannot be applied", "")
        if not steps or what not in ("add", "replace", "remove", "test"):
            raise wrong
        inside: Json = document
        for step in steps[:-1]:
            if isinstance(inside, list) and step.isdigit() and int(step) < len(inside):
                inside = inside[int(step)]
            elif isinstance(inside, dict) and step in inside:
                inside = inside[step]
            else:
                raise wrong
        last = steps[-1]
        if isinstance(inside, dict) and what != "test":
            if what == "remove":
                inside.pop(last, None)
            else:
                inside[last] = copied(operation.get("value"))
        elif isinstance(inside, list) and (last == "-" or (last.isdigit() and int(last) <= len(inside))):
            at = len(inside) if last == "-" else int(last)
            if what == "add":
                inside.insert(at, copied(operation.get("value")))
            elif what != "test":
                inside[at : at + 1] = [copied(operation.get("value"))] if what == "replace" else []
        elif what != "test":
            raise wrong


def _is(document: dict[str, Json], target: Mapping[str, Json]) -> bool:
    """Return whether a patch is for a document."""
    metadata = as_map(document.get("metadata"))
    pairs = ((target.get("kind"), document.get("kind")), (target.get("name"), metadata.get("name")))
    try:
        return all(one is None or re.fullmatch(str(one), str(other)) is not None for one, other in pairs)
    except re.error:
        return all(one in (None, other) for one, other in pairs)


def merged(base: Json, patch: Json, *, named: bool, key: str = "") -> Json:
    """Return a value with a strategic merge patch applied; ``named`` merges entries of lists by their names."""
    if isinstance(base, dict) and isinstance(patch, dict):
        if patch.get("$patch") == "replace":
            return {name: value for name, value in patch.items() if name != "$patch"}
        made = {name: value for name, value in base.items() if name not in patch or patch[name] is not None}
        for name, value in patch.items():
            if value is not None and name != "$patch":
                made[name] = merged(made.get(name), value, named=named, key=name)
        return made
    by = _LISTED.get(key, "")
    if not (named and by and isinstance(base, list) and isinstance(patch, list)):
        return copied(patch)
    entries = list(base)
    for one in patch:
        at = next((at for at, old in enumerate(entries) if as_map(old).get(by) == as_map(one).get(by)), None)
        if as_map(one).get("$patch") == "delete":
            entries = entries if at is None else entries[:at] + entries[at + 1 :]
        elif at is None:
            entries.append(copied(one))
        else:
            entries[at] = merged(entries[at], one, named=named)
    return entries


def _set_image(image: dict[str, Json], found: list[dict[str, Json]]) -> None:
    """Set name and tag of an image wherever a container has it."""
    for container in [as_map(value) for one in found for value in values(one)]:
        named, sign, tag = str(container.get("image") or "").partition(":")
        if named and named == image.get("name") and isinstance(container.get("image"), str):
            tag = str(image.get("newTag") or tag)
            end = f"@{image['digest']}" if image.get("digest") else f":{tag}" if tag else sign
            container["image"] = f"{image.get('newName') or named}{end}"


def _generated(entry: Json) -> dict[str, Json]:
    """Return the ConfigMap of a generator, as far as its values stand in the kustomization."""
    one = as_map(entry)
    pairs = [str(text).partition("=")[::2] for text in as_list(one.get("literals"))]
    return {"kind": "ConfigMap", "metadata": {"name": one.get("name")}, "data": dict(pairs)}
