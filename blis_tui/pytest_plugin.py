"""pytest plugin: every experiment (``*.blis.yaml``) and study (``*.study.yaml``) below the root is a golden test.

pytest imports this module in every run in an environment that has the package, so it imports nothing heavy; the work is
done in ``blis_tui.golden``.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from blis_tui.base.classes import NamedTuple
from blis_tui.base.text import escaped, printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.golden.case import Case
    from blis_tui.golden.golden_store import GoldenFiles
    from blis_tui.golden.other_process import OtherProcess
    from blis_tui.golden.project import Project
    from blis_tui.golden.session import GoldenSettings, Outcome
    from blis_tui.model.plug_ins import Registry

# Repeated from blis_tui.golden, which must not be imported to print pytest's help.
_MODES = ("auto", "no", "new", "unseen", "always")
_OBSOLETE = ("ignore", "warn", "fail", "delete")
_CHECKS = "observers checkpoint hash-seed"
_PROPERTY = "blis_golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Define options and ini settings."""
    group = parser.getgroup("blis", "golden tests of simulated experiments")
    group.addoption(
        "--blis-update",
        choices=_MODES,
        default=os.environ.get("BLIS_UPDATE", "auto"),
        help="what may be written: no = nothing, new = new results next to the goldens, unseen = goldens that do not "
        "exist yet, always = all goldens, auto = no on CI, otherwise new",
    )
    group.addoption(
        "--blis-obsolete",
        choices=_OBSOLETE,
        default="warn",
        help="what to do with goldens that belong to no experiment, after a full run",
    )
    group.addoption(
        "--blis-force", action="store_true", help="also update goldens with a Python other than their baseline"
    )
    group.addoption(
        "--blis-plugins",
        action="append",
        default=[],
        metavar="FILE.py|PACKAGE",
        help="run this code and make its plug-ins available to experiments by name; repeatable",
    )
    group.addoption("--blis-report", metavar="FILE.html", help="write a report of all golden tests")
    parser.addini(
        "blis_spec_glob",
        "patterns of experiment and study files",
        type="args",
        default=["*.blis.yaml", "*.study.yaml"],
    )
    parser.addini(
        "blis_spec_root", "goldens are laid out below blis_golden_dir as experiments are below this folder", default="."
    )
    parser.addini("blis_golden_dir", "folder of the golden files", default="golden")
    parser.addini(
        "blis_plugins", "scripts and packages with plug-ins that experiments may use by name", type="args", default=[]
    )
    parser.addini("blis_checks", "ways to repeat a run that must give the same bytes", default=_CHECKS)


def pytest_configure(config: pytest.Config) -> None:
    """Track the golden tests of this run, including those that xdist's workers run.

    Raises:
        pytest.UsageError: a setting has an invalid value.
    """
    mode = config.getoption("--blis-update")
    if mode not in _MODES:  # pytest checks the option, but not the environment variable
        raise pytest.UsageError(f"BLIS_UPDATE is {printable(mode)!r}: choose from {', '.join(_MODES)}")
    for check in config.getini("blis_checks").split():
        if check not in _CHECKS.split():
            known = ", ".join(_CHECKS.split())
            raise pytest.UsageError(f"blis_checks: no check is named {printable(check)!r}; known are {known}")
    report = config.getoption("--blis-report")
    if report and (Path(report).is_dir() or not Path(report).parent.is_dir()):
        raise pytest.UsageError(f"--blis-report: no file can be written as {printable(report)}")
    config.pluginmanager.register(_Session(config), "blis-golden-session")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SpecFile | None:
    """Collect files that look like experiments or studies."""
    if not any(file_path.match(pattern) for pattern in parent.config.getini("blis_spec_glob")):
        return None
    name = _below(parent.config.rootpath, file_path)
    if (shown := escaped(name)) == name:
        return SpecFile.from_parent(parent, path=file_path)
    return SpecFile.from_parent(
        parent, path=file_path, name=escaped(file_path.name), nodeid=shown
    )  # pytest prints both


class SpecFile(pytest.File):
    """An experiment or study file."""

    def collect(self) -> Iterator[SpecItem]:
        """Collect one item per case; an invalid file becomes one item that fails with the reason."""
        from blis_tui.base.errors import BlisError  # noqa: PLC0415  (only runs with such files need it)
        from blis_tui.golden.case import cases_of  # noqa: PLC0415
        from blis_tui.golden.project import project_of  # noqa: PLC0415

        try:
            project = project_of(self.path, _own_project(self.config))
            tests = [
                _Test(case, project.files(self.path, case.name), project)
                for case in cases_of(self.path, _plugins(self.config, project))
            ]
        except BlisError as error:
            yield SpecItem.from_parent(self, name="valid", test=None, problem=error)
            return
        for test in tests:
            case = test.case
            item = SpecItem.from_parent(self, name=case.name, test=test, problem=None)
            for tag in case.tags:
                self.config.addinivalue_line("markers", f"{tag}: a tag of experiments")
                item.add_marker(tag)
            if case.skip:
                item.add_marker(pytest.mark.skip(reason=printable(case.skip)))
            if case.xfail:
                item.add_marker(pytest.mark.xfail(reason=printable(case.xfail)))
            yield item


class _Test(NamedTuple):
    """A case with the place of its golden, and its project."""

    case: Case
    files: GoldenFiles
    project: Project


class GoldenFailure(Exception):  # noqa: N818  (users never see this name)
    """A golden test failed; carries its outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.text)
        self.outcome = outcome


class SpecItem(pytest.Item):
    """One golden test."""

    def __init__(self, *, test: _Test | None, problem: Exception | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.test = test
        self.problem = problem

    def runtest(self) -> None:
        """Run the experiment or study and compare it with its golden."""
        if self.problem is not None:
            raise self.problem
        if self.test is None:
            raise TypeError("an item has a test or a problem")
        from blis_tui.golden.project import plugins_option  # noqa: PLC0415
        from blis_tui.golden.session import run_case  # noqa: PLC0415

        case, files, project = self.test
        result: dict[str, object] = {"golden": str(files.file(".golden.json"))}
        self.user_properties.append((_PROPERTY, ""))
        try:
            spec, settings = _below(project.root, self.path), _settings(self.config)
            outcome = run_case(case, files, spec, settings, other=_other_process(self.config))
            result |= {"status": outcome.status, "pending": outcome.pending, "text": outcome.text}
            result["review"] = project.review_command() + plugins_option(self.config.getoption("--blis-plugins"))
            if outcome.status == "missing":
                result["new_report"] = sha256(outcome.report.encode()).hexdigest()
                result["spec_sha256"] = _spec_digest(outcome.report)
            if self.config.getoption("--blis-report"):
                result["report"] = json.loads(outcome.report)
        finally:
            result |= {
                "nodeid": self.nodeid,
                "spec": _below(self.config.rootpath, self.path),
                "case": case.name,
                "line": case.line,
            }
            self.user_properties[-1] = (_PROPERTY, json.dumps(result))
        if not outcome.ok:
            raise GoldenFailure(outcome)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Format verdicts and the package's own errors without a traceback."""
        from blis_tui.base.errors import BlisError  # noqa: PLC0415

        error = excinfo.value
        if isinstance(error, GoldenFailure | BlisError):
            return printable_lines(str(error))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the location of the case."""
        return (
            Path(escaped(str(self.path))),
            (self.test.case.line if self.test else 1) - 1,
            f"{escaped(_below(self.config.rootpath, self.path))}::{self.name}",
        )


def _spec_digest(report: str) -> str:
    """Return the digest of the experiment that a report is about; empty = of none."""
    try:
        return str(json.loads(report)["meta"]["spec_sha256"])
    except (ValueError, KeyError, TypeError):  # damaged, or that of a study
        return ""


def _below(root: Path, path: Path) -> str:
    """Return a file's path relative to a folder, with ``/``."""
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def _settings(config: pytest.Config) -> GoldenSettings:
    from blis_tui.golden.session import GoldenSettings, decide_mode, on_ci  # noqa: PLC0415

    checks = tuple(config.getini("blis_checks").split())
    mode = decide_mode(config.getoption("--blis-update"), ci=on_ci())
    return GoldenSettings(mode=mode, checks=checks, force=config.getoption("--blis-force"))


_OTHER = pytest.StashKey["OtherProcess"]()


def _other_process(config: pytest.Config) -> OtherProcess:
    """Return the process that all tests of this process share until it ends."""
    if _OTHER not in config.stash:
        from blis_tui.golden.other_process import OtherProcess  # noqa: PLC0415

        config.stash[_OTHER] = OtherProcess()
        config.add_cleanup(config.stash[_OTHER].__exit__)
    return config.stash[_OTHER]


_PLUGINS = pytest.StashKey["dict[tuple[str, ...], Registry | None]"]()


def _plugins(config: pytest.Config, project: Project) -> Registry | None:
    """Return the plug-ins that the experiments of a project may name."""
    loaded = config.stash.setdefault(_PLUGINS, {})
    if project.plugins not in loaded:
        loaded[project.plugins] = project.registry(config.getoption("--blis-plugins"))
    return loaded[project.plugins]


def _own_project(config: pytest.Config) -> Project:
    """Return the project of this run. Scripts of the ini file are relative to it."""
    from blis_tui.golden.project import SCRIPT, Project  # noqa: PLC0415

    folder = config.rootpath if config.inipath is None else config.inipath.parent
    settings: dict[str, object] = {name: config.getini(name) for name in ("blis_spec_root", "blis_golden_dir")}
    named = config.getini("blis_plugins")
    settings["blis_plugins"] = [str(folder / plugin) if plugin.endswith(SCRIPT) else plugin for plugin in named]
    return Project.at(config.rootpath, settings)


class _Session:
    """What the controlling process of a run knows about its golden tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._results: dict[str, dict[str, Any]] = {}
        self._is_collected = False
        self._is_partial = False
        self._unwritten = ""

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Note that tests were deselected: then goldens without tests cannot be determined."""
        self._is_partial = self._is_partial or any(isinstance(item, SpecItem) for item in items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note that a part of the project cannot be collected: its goldens may belong to tests there."""
        self._is_partial = self._is_partial or report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the result of each golden test."""
        for name, value in report.user_properties:
            if name == _PROPERTY and value:
                result = json.loads(str(value))
                result["outcome"] = "passed" if report.passed else "failed" if report.failed else "skipped"
                if report.when == "call" or result["nodeid"] not in self._results:
                    self._results[result["nodeid"]] = result

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Register the goldens of all collected tests, because those of skipped tests are not obsolete."""
        self._is_collected = True
        for item in session.items:
            if isinstance(item, SpecItem) and item.test is not None:
                golden = str(item.test.files.file(".golden.json"))
                self._results.setdefault(item.nodeid, {"golden": golden, "nodeid": item.nodeid})
            elif isinstance(item, SpecItem):
                self._is_partial = True  # a broken file: its cases are unknown

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what one of xdist's workers has collected; each collects everything, this process nothing."""
        output = getattr(node, "workeroutput", {}).get(_PROPERTY)  # that of a worker that crashed has nothing
        if output is not None:
            self._is_collected = True
            self._is_partial = self._is_partial or output["is_partial"]
            for result in output["collected"]:
                self._results.setdefault(result["nodeid"], result)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Find goldens without a test, and write the report."""
        if hasattr(self._config, "workerinput"):
            collected = [{name: result[name] for name in ("golden", "nodeid")} for result in self._results.values()]
            worker: Any = self._config
            worker.workeroutput[_PROPERTY] = {"is_partial": self._is_partial, "collected": collected}
            return
        target = self._config.getoption("--blis-report")
        ran = [result for result in self._results.values() if "spec" in result]
        if target:
            from blis_tui.base.errors import InputError  # noqa: PLC0415
            from blis_tui.golden.comment import write_html  # noqa: PLC0415

            try:
                write_html(Path(target), ran)
            except InputError as error:
                self._unwritten = str(error)
                session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        if self._obsolete and self._config.getoption("--blis-obsolete") == "fail" and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @property
    def _obsolete(self) -> list[GoldenFiles]:
        """Return goldens that belong to no test; empty unless this was a full run."""
        config = self._config
        if config.getoption("--blis-obsolete") == "ignore" or not self._results or not self._is_full():
            return []
        from blis_tui.golden.golden_store import all_goldens  # noqa: PLC0415

        known = {result["golden"] for result in self._results.values()}
        folder = _own_project(config).golden_dir
        return [files for files in all_goldens(folder) if str(files.file(".golden.json")) not in known]

    def _renamed(self, files: GoldenFiles) -> str:
        """Return which test without a golden has the experiment of an obsolete one, because it was renamed."""
        try:
            text = files.file(".report.json").read_bytes()
        except OSError:
            return ""
        digest = _spec_digest(text.decode(errors="replace"))
        for result in self._results.values():
            if digest and result.get("spec_sha256") == digest:
                same = result["new_report"] == sha256(text).hexdigest()
                return f": its experiment is now {result['nodeid']}, with {'the same' if same else 'another'} result"
        return ""

    def _is_full(self) -> bool:
        config = self._config
        option = config.option
        narrowed = (
            not self._is_collected
            or self._is_partial
            or option.keyword
            or option.markexpr
            or option.collectonly
            or getattr(option, "lf", False)
            or getattr(option, "deselect", None)
            or option.ignore
            or option.ignore_glob
            or getattr(option, "stepwise", False)
            or getattr(option, "maxfail", 0)
        )
        if config.args_source is pytest.Config.ArgsSource.INVOCATION_DIR:  # a folder below the root: only its tests
            narrowed = narrowed or config.invocation_params.dir != config.rootpath
        return not narrowed and config.args_source is not pytest.Config.ArgsSource.ARGS

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print pending and obsolete goldens, and annotate on GitHub."""
        if hasattr(self._config, "workerinput"):  # xdist's workers also summarize, but their output is dropped
            return
        if self._unwritten:
            terminalreporter.line(printable(f"--blis-report: {self._unwritten}"))
        pending = [result for result in self._results.values() if result.get("pending")]
        if pending:
            from blis_tui.base.units import plural  # noqa: PLC0415

            terminalreporter.section("goldens", sep="-")
            terminalreporter.line(f"{plural(len(pending), 'new result')} waiting:")
            for result in pending:
                terminalreporter.line(printable(f"    {result['nodeid']}"))
            for command in dict.fromkeys(result["review"] for result in pending):
                terminalreporter.line(printable(f"review them with: {command}"))
        obsolete = self._obsolete
        if obsolete:
            delete = self._config.getoption("--blis-obsolete") == "delete"
            terminalreporter.section("obsolete goldens", sep="-")
            for files in obsolete:
                line = f"    {files.folder / files.name}{' (deleted)' if delete else ''}{self._renamed(files)}"
                terminalreporter.line(printable(line))
                if delete:
                    files.remove()
            if not delete:
                terminalreporter.line("no experiment has them any more: delete them with --blis-obsolete=delete")
        if os.environ.get("GITHUB_ACTIONS") == "true":
            for result in self._results.values():
                if result.get("outcome") == "failed":
                    text = printable_lines(str(result.get("text", ""))).replace("%", "%25").replace("\n", "%0A")
                    where = printable(f"file={result['spec']},line={result['line']}")
                    terminalreporter.line(f"::error {where}::{text}")
