"""The application as screens see it, and the commands of its palette: what can be chosen there, and what can be typed.

Each entry begins with its noun, so that entries of a kind are adjacent. What is typed is an entry's command, such as a
pane or an action; a verb with what it is about, such as ``break preemptions > 0``; or whatever the screen knows by that
name.
"""

from __future__ import annotations

from functools import partial
from inspect import isawaitable
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, Final, Protocol, TypedDict, Unpack, cast, runtime_checkable

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.errors import BlisError
from blis_tui.results.conditions.suggestions import Suggestion
from blis_tui.spec.library import names
from blis_tui.tui.actions import ACTIONS, APP, named, shown_keys

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from pathlib import Path

    from textual.app import App
    from textual.fuzzy import Matcher
    from textual.screen import Screen

    from blis_tui.cluster.decisions import RouteOverrides
    from blis_tui.model import Experiment
    from blis_tui.tui.actions import Action
    from blis_tui.tui.settings import Keymap


class LoadedBy(NamedTuple):
    """What an experiment was loaded from, for loading it again."""

    source: str
    """Its name or path, as the user gave it."""
    overrides: tuple[str, ...] = ()
    """The ``--set`` arguments."""
    seed: int | None = None

    def command(self, place: str, plugins: Iterable[str] = ()) -> str:
        """Return the shell command that opens the debugger at a place.

        Args:
            place: an event's number, or what else ``--at`` takes.
            plugins: the plug-ins to load, as a user names them.
        """
        from blis_tui.golden.project import plugins_option  # noqa: PLC0415  (only needed to write a command)

        changed = "".join(f" --set {quote(override)}" for override in self.overrides)
        seed = "" if self.seed is None else f" --seed {self.seed}"
        return f"blis-tui tui {quote(self.source)}{changed}{seed}{plugins_option(plugins)} --at {quote(place)}"


class ComparedFrom(TypedDict, total=False):
    """Where a comparison of two experiments starts (by default at the beginning), and their origins."""

    event: int | None
    time_us: int | None
    routes: RouteOverrides | None
    """Routing decisions overridden in the second experiment."""
    at_divergence: bool
    """Whether to start at the first event that differs."""
    loaded_by: tuple[LoadedBy, LoadedBy]
    """What each was loaded from, if known."""


class Shell(Protocol):
    """The application's own methods, beyond Textual's."""

    folder: Path
    keymap: Keymap

    def open_experiment(self, source: str) -> object:
        """Show an experiment in the debugger."""

    def open_study(self, source: str) -> object:
        """Show a study."""

    def open_loaded(
        self, experiment: Experiment, by: LoadedBy, at: str | None = None, routes: RouteOverrides | None = None
    ) -> object:
        """Show a loaded experiment, given what it was loaded from and the first position."""

    def loaded_by(self, screen: Screen[None]) -> LoadedBy | None:
        """Return what the experiment of a debugger was loaded from; None = unknown."""

    def reopen_experiment(self, source: str, at: str | None = None) -> object:
        """Load an experiment again, and return to the same position."""

    def open_palette(self, text: str = "") -> None:
        """Show the palette, with a text to go on with."""

    def show_error(self, source: str, error: BlisError, again: Callable[[], object]) -> None:
        """Show why an experiment cannot be opened, with a way to try again."""

    def open_compare(
        self, left: Experiment, right: Experiment, names: tuple[str, str], **start: Unpack[ComparedFrom]
    ) -> None:
        """Show two experiments side by side."""

    def theme_names(self) -> Iterable[str]:
        """Return the available themes."""

    def scope_of(self, screen: Screen[object]) -> str:
        """Return the scope of a screen's actions."""

    def is_usable(self, action: Action, screen: Screen[object]) -> bool:
        """Return whether a screen can currently run an action."""

    async def perform(self, action: Action, screen: Screen[object] | None = None) -> bool:
        """Run an action as if its key had been pressed."""


def shell(app: App[object] | App[None]) -> Shell:
    """Return the application, which is always one of ours."""
    return cast("Shell", app)


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """An entry: ``Request: request_12``."""

    noun: str
    text: str
    run: Callable[[], object | Awaitable[object]]
    help: str = ""
    commands: tuple[str, ...] = ()
    """What else can be typed for it, besides its title."""
    problem: str = ""
    """Why it cannot be run as it was typed; empty = it can."""

    @property
    def title(self) -> str:
        """The text that is shown and searched."""
        return f"{self.noun}: {self.text}"

    def is_typed(self, text: str) -> bool:
        """Return whether a text is one of its commands, in any case."""
        return any(text.lower() == command.lower() for command in (*self.commands, self.title))


def _no_completion(_text: str) -> Iterator[Suggestion]:
    return iter(())


def _valid(_text: str) -> None:
    return None


class Verb(NamedTuple):
    """A command that takes a text: ``break preemptions > 0``."""

    word: str
    about: str
    """What it does, as a sentence."""
    run: Callable[[str], object]
    check: Callable[[str], object] = _valid
    """Raises BlisError if a text is invalid."""
    complete: Callable[[str], Iterable[Suggestion]] = _no_completion
    """Returns completions of a text."""
    asks: str = ""
    """The action that asks for the text; empty = nothing does."""

    def problem(self, text: str) -> str:
        """Return why it cannot take a text; empty = it can."""
        try:
            self.check(text)
        except BlisError as error:
            return str(error).splitlines()[0]
        return ""


def completed(typed: str, words: Iterable[tuple[str, str]]) -> Iterator[Suggestion]:
    """Yield words, given with their meanings, that begin as a text does."""
    for word, meaning in words:
        if word != typed and word.lower().startswith(typed.lower()):
            yield Suggestion(word, word, meaning)


@runtime_checkable
class HasPalette(Protocol):
    """A screen with entries of its own, such as its requests."""

    def palette_entries(self, query: str) -> Iterable[PaletteEntry]:
        """Return the entries for a query (empty at first); a few dozen at most."""
        ...


@runtime_checkable
class HasVerbs(Protocol):
    """A screen with verbs of its own, and with things that can be gone to by name."""

    def palette_verbs(self) -> Iterable[Verb]:
        """Return its verbs."""
        ...

    def palette_names(self, start: str) -> Iterable[tuple[str, str]]:
        """Yield names that begin so, and what they are; a few dozen at most."""
        ...

    def palette_named(self, text: str) -> PaletteEntry | None:
        """Return what goes to the thing of a name; None = there is none."""
        ...


_TYPED: Final = "Command"
"""The noun of entries that are typed."""
QUOTED: Final = 40
"""Maximum length of what was typed, in a message about it."""
_COMPLETIONS: Final = 8
"""Maximum number of completions that the list shows."""


class CommandLine:
    """What can be typed and chosen on a screen."""

    def __init__(self, app: App[None], screen: Screen[object]) -> None:
        self._app, self._screen = app, screen
        self._documents: tuple[PaletteEntry, ...] | None = None

    # ---- what there is ----

    def actions(self) -> Iterator[PaletteEntry]:
        """Yield the actions that the screen can run now."""
        app, screen = shell(self._app), self._screen
        for scope in dict.fromkeys((app.scope_of(screen), APP)):
            for action in ACTIONS:
                if action.scope == scope and action.name != "app.palette" and app.is_usable(action, screen):
                    run = partial(app.perform, action, screen)
                    yield PaletteEntry(action.group, action.title, run, self._about(action), _typed_for(action))

    def _about(self, action: Action) -> str:
        keys = shown_keys(shell(self._app).keymap.keys[action.name])
        return f"{action.help}  ({keys})" if keys else action.help

    def entries(self, query: str) -> Iterator[PaletteEntry]:
        """Yield all entries in one order: the screen's actions, its own entries, documents, themes."""
        yield from self.actions()
        if isinstance(self._screen, HasPalette):
            yield from self._screen.palette_entries(query)
        if self._documents is None:
            self._documents = tuple(self._read_documents())
        yield from self._documents
        for name in shell(self._app).theme_names():
            yield PaletteEntry("Theme", name, partial(setattr, self._app, "theme", name), commands=(f"theme {name}",))

    def _read_documents(self) -> Iterator[PaletteEntry]:
        app = shell(self._app)
        for name in names("Experiment", app.folder):
            run = partial(app.open_experiment, name)
            yield PaletteEntry("Open", name, run, "Open it in the debugger.", (f"open {name}",))
        for name in names("Study", app.folder):
            run = partial(app.open_study, name)
            yield PaletteEntry("Study", name, run, "Show its points and the front among them.", (f"study {name}",))

    def _verbs(self) -> Iterator[Verb]:
        if isinstance(self._screen, HasVerbs):
            yield from self._screen.palette_verbs()
        yield Verb("open", "Open an experiment in the debugger.", shell(self._app).open_experiment)
        yield Verb("study", "Show the points of a study.", shell(self._app).open_study)

    # ---- what is typed ----

    def typed(self, text: str) -> PaletteEntry | None:
        """Return what a whole text means; None = nothing by itself."""
        text = text.strip().removeprefix(":").strip()
        word, _, rest = text.partition(" ")
        for verb in self._verbs():
            if verb.word == word and rest.strip():
                run = partial(verb.run, rest.strip())
                return PaletteEntry(_TYPED, text, run, verb.about, problem=verb.problem(rest.strip()))
            if verb.word == word and verb.asks:
                action = named(verb.asks)
                return PaletteEntry(_TYPED, text, partial(shell(self._app).perform, action, self._screen), verb.about)
        if not text:
            return None
        known = self._screen.palette_named(text) if isinstance(self._screen, HasVerbs) else None
        return known or next((entry for entry in self.entries(text) if entry.is_typed(text)), None)

    def completions(self, text: str) -> Iterator[Suggestion]:
        """Yield whole texts that begin with this one."""
        begun = text.lstrip().removeprefix(":").lstrip()
        word, blank, rest = begun.partition(" ")
        if not begun:
            return
        for verb in self._verbs():
            if blank and verb.word == word:
                for suggestion in verb.complete(rest.lstrip()):
                    yield Suggestion(f"{word} {suggestion.text}", suggestion.word, suggestion.meaning)
        yield from completed(begun, ((f"{verb.word} ", verb.about) for verb in self._verbs()))
        if isinstance(self._screen, HasVerbs):
            yield from completed(begun, self._screen.palette_names(begun))
        known = ((command, entry.help) for entry in self.entries(begun) for command in entry.commands)
        yield from completed(begun, known)

    def complete(self, text: str) -> Suggestion | None:
        """Return the first completion, in the reader's own spelling so far."""
        suggestion = next(self.completions(text), None)
        if suggestion is None:
            return None
        lead = len(text) - len(text.lstrip().removeprefix(":").lstrip())
        return Suggestion(text + suggestion.text[len(text) - lead :], suggestion.word, suggestion.meaning)

    def hits(self, query: str) -> Iterator[tuple[PaletteEntry, str]]:
        """Yield what a text means and how verbs go on, each with the text that it would be typed as."""
        entry = self.typed(query)
        if entry is not None:
            yield entry, query
        for completion in islice(self.completions(query), _COMPLETIONS):
            word, _, rest = completion.text.partition(" ")
            if any(verb.word == word for verb in self._verbs()):
                again = partial(shell(self._app).open_palette, completion.text)
                whole = self.typed(completion.text) if rest.strip() else None
                run = again if whole is None or whole.problem else whole.run
                yield PaletteEntry(_TYPED, completion.text.strip(), run, completion.meaning), completion.text

    def runs(self, entry: PaletteEntry) -> Callable[[], Awaitable[None]]:
        """Return what runs an entry, and tells of errors."""
        return partial(_run, self._app, entry)


async def _run(app: App[None], entry: PaletteEntry) -> None:
    problem = entry.problem
    try:
        result = None if problem else entry.run()
        if isawaitable(result):
            await result
    except BlisError as error:
        problem = str(error)
    if problem:
        app.notify(problem, title=entry.text, severity="error", markup=False)
        if entry.noun == _TYPED:
            shell(app).open_palette(entry.text)  # for another try


def _typed_for(action: Action) -> tuple[str, ...]:
    """Return what can be typed for an action: its name, its title, a pane's own name."""
    kind, _, rest = action.name.partition(".")
    return (action.name, action.title, *((rest, action.title.partition(": ")[2]) if kind == "pane" else ()))


class Commands(Provider):
    """The palette's list: what the typed text means, how it can go on, and whatever matches it."""

    _line: CommandLine

    async def startup(self) -> None:
        """Begin with the screen below the palette."""
        self._line = CommandLine(cast("App[None]", self.app), self.screen)

    async def discover(self) -> Hits:
        """Yield the actions, which are offered before anything is typed."""
        for entry in self._line.actions():
            yield DiscoveryHit(entry.title, self._line.runs(entry), help=entry.help or None)

    async def search(self, query: str) -> Hits:
        """Yield what the text means, then every match."""
        line, matcher = self._line, self.matcher(query)
        shown: set[str] = set()
        for place, (entry, text) in enumerate(line.hits(query)):
            if entry.title not in shown:
                shown.add(entry.title)
                about = f"✗ {entry.problem}" if entry.problem else entry.help
                yield Hit(
                    _FIRST - place, Content(entry.title), line.runs(entry), text=text, help=_literal(about) or None
                )
        for entry in line.entries(query):
            score = matcher.match(entry.title)
            if score > 0 and entry.title not in shown:
                title = _highlighted(matcher, entry.title)
                yield Hit(score, title, line.runs(entry), text=entry.title, help=_literal(entry.help) or None)


def _highlighted(matcher: Matcher, title: str) -> Content:
    """Return a title with what matches highlighted; the matcher's own way takes brackets for markup."""
    _, places = matcher.fuzzy_search.match(matcher.query, title)
    content = Content(title)
    for place in places:
        if not title[place].isspace():
            content = content.stylize(matcher.match_style, place, place + 1)
    return content


def _literal(text: str) -> str:
    """Return markup that shows a text as it is; Rich's and Textual's escapes leave some brackets, such as ``[/``."""
    return text.replace("[", "\\[")


_FIRST: Final = 1_000_000.0
"""Score above that of every fuzzy match."""
