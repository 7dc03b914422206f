"""One workload of several: rates, names, limits, and what cannot be."""

from pathlib import Path

import pytest
import yaml

from blis_tui.base.errors import PolicyError
from blis_tui.live.traffic import traffic_figures
from blis_tui.live.traffic.compose import are_traces, composed, merged
from blis_tui.live.traffic.describe import trace_csv
from blis_tui.live.traffic.ledger import Ledger
from blis_tui.live.traffic.opening import Choice, Traffic, open_traffic
from blis_tui.spec.validate import validate

DECLARED = Choice(generating=False)


def parts(*names: object, choice: Choice = DECLARED) -> list[Traffic]:
    return [open_traffic(str(name), choice) for name in names]


def test_rates_are_kept_and_names_are_unique(tmp_path: Path) -> None:
    result = composed(parts("chatbot", "mixed-slo", "prefix-heavy", "prefix-heavy"), "all")
    data = yaml.safe_load(result.text)
    shares = {client["id"]: client["share"] for client in data["clients"]}
    assert shares == pytest.approx(
        {
            "chat": 8.0,
            "autocomplete": 12 * 0.33,
            "chat-2": 12 * 0.34,
            "reports": 12 * 0.33,
            "assistant": 8.0,
            "others": 2.0,
            "assistant-2": 8.0,
            "others-2": 2.0,
        }
    )
    assert (data["rate_per_s"], data["requests"]) == (40.0, 2000)
    assert [client["prefix"]["group"] for client in data["clients"] if "prefix" in client] == [
        "system-prompt",
        "system-prompt-2",
    ]
    path = tmp_path / "all.yaml"
    path.write_text(result.text)
    assert validate(path).name == "all"
    traffic = open_traffic(str(path), Choice())
    description = traffic_figures.describe(traffic, Ledger(traffic.requests, 16))
    for name, group in description.clients.items():
        assert group.rate_per_s == pytest.approx(shares[name], rel=4 / group.requests**0.5)
    assert result.notes == (
        "mixed-slo: the client `chat` was renamed to `chat-2`",
        "prefix-heavy: the client `assistant` was renamed to `assistant-2`",
        "prefix-heavy: the client `others` was renamed to `others-2`",
        "prefix-heavy: the prefix group `system-prompt` was renamed to `system-prompt-2`",
        "requests: 2,000 of all clients together, each at its own rate",
    )


def test_a_new_name_is_not_one_that_follows(tmp_path: Path) -> None:
    lengths = "input_tokens: 9, output_tokens: 9"
    text = "apiVersion: blis/v1\nkind: Workload\nmetadata: {{name: w}}\nrate_per_s: 1.0\nclients: [{0}]\n"
    for name, ids in (("a", ["x"]), ("b", ["x", "x-2"])):
        clients = ", ".join(f"{{id: {one}, {lengths}}}" for one in ids)
        (tmp_path / f"{name}.yaml").write_text(text.format(clients))
    result = composed(parts(tmp_path / "a.yaml", tmp_path / "b.yaml"), "w")
    assert [client["id"] for client in yaml.safe_load(result.text)["clients"]] == ["x", "x-3", "x-2"]
    assert result.notes[-1].startswith("requests: not all workloads limit them")


def test_users_of_a_closed_loop_keep_no_rate(tmp_path: Path) -> None:
    path = tmp_path / "users.yaml"
    path.write_text(
        "apiVersion: blis/v1\nkind: Workload\nmetadata: {name: users}\nrequests: 10\n"
        "clients: [{id: u, arrivals: {kind: closed-loop, users: 4}, input_tokens: 9, output_tokens: 9}]\n"
    )
    alone = yaml.safe_load(composed(parts(path), "w").text)
    beside = yaml.safe_load(composed(parts(path, "chatbot"), "w").text)
    assert ("rate_per_s" in alone, beside["rate_per_s"]) == (False, 8.0)
    assert [client.get("share") for client in beside["clients"]] == [None, 8.0]


def test_users_of_a_closed_loop_take_nothing_of_the_rate_of_those_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "both.yaml"
    path.write_text(
        "apiVersion: blis/v1\nkind: Workload\nmetadata: {name: both}\nrequests: 10\nrate_per_s: 6\nclients:\n"
        "- {id: u, arrivals: {kind: closed-loop, users: 4}, input_tokens: 9, output_tokens: 9}\n"
        "- {id: v, share: 1, input_tokens: 9, output_tokens: 9}\n"
        "- {id: w, share: 2, input_tokens: 9, output_tokens: 9}\n"
    )
    data = yaml.safe_load(composed(parts(path, "chatbot"), "w").text)
    shares = {client["id"]: client.get("share") for client in data["clients"]}
    assert shares == {"u": None, "v": pytest.approx(2.0), "w": pytest.approx(4.0), "chat": pytest.approx(8.0)}
    assert data["rate_per_s"] == pytest.approx(14.0)


def test_stages_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "stages.yaml"
    path.write_text(
        "apiVersion: blis/v1\nkind: Workload\nmetadata: {name: ramp}\nstages: [{rate_per_s: 2, duration_s: 5}]\n"
        "clients: [{id: u, input_tokens: 9, output_tokens: 9}]\n"
    )
    with pytest.raises(PolicyError, match="`ramp` has `stages`, which would count for the clients of the others, too"):
        composed(parts("chatbot", path), "w")
    rest = "rate_per_s: 2\nsessions: 9\nclients: [{id: u, session: {turns: 2}, input_tokens: 9, output_tokens: 9}]\n"
    path.write_text(f"apiVersion: blis/v1\nkind: Workload\nmetadata: {{name: chats}}\n{rest}")
    with pytest.raises(PolicyError, match="`chats` has `sessions`") as caught:
        composed(parts("chatbot", path), "w")
    assert caught.value.help == "remove `sessions`"


def test_traces_are_merged_by_time(tmp_path: Path) -> None:
    head = "request_id,arrival_time_us,input_tokens,output_tokens,prefix_group,prefix_length,session_id\n"
    (tmp_path / "a.csv").write_text(head + "r,5,9,1,g,4,s\nq,7,9,2,,0,\n")
    (tmp_path / "b.csv").write_text(head + "r,5,9,3,g,4,s\nq,6,9,4,,0,\n")
    requests = [timing.request for timing in merged(parts(tmp_path / "a.csv", tmp_path / "b.csv"))]
    assert [(request.arrival_us, request.request_id, request.output_tokens) for request in requests] == [
        (5, "a/r", 1),
        (5, "b/r", 3),
        (6, "b/q", 4),
        (7, "a/q", 2),
    ]
    assert [request.segments for request in requests[:2]] == [(("a/g", 4),), (("b/g", 4),)]
    assert [request.session_id for request in requests] == ["a/s", "b/s", "", ""]
    twice = list(trace_csv(merged(parts(tmp_path / "a.csv", tmp_path / "a.csv"))))
    assert [line.partition(",")[0] for line in twice[1:]] == ["a-1/r", "a-2/r", "a-1/q", "a-2/q"]


def test_what_is_recorded_and_what_is_generated_do_not_mix() -> None:
    with pytest.raises(PolicyError, match="`trace-replay` is recorded and `chatbot` is generated"):
        are_traces(parts("chatbot", "trace-replay"))


def test_media_and_answers_of_two_traces_are_not_the_same(tmp_path: Path) -> None:
    head = "arrival_time_us,input_tokens,output_tokens,prefix_segments,answer_segment,image_tokens,media_items,e2e_us\n"
    row = '5,9,4,"[[""s"",9]]",said,3,"[[0,3,""cat""]]",70\n'
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(head + row)
    timings = list(merged(parts(tmp_path / "a.csv", tmp_path / "b.csv")))
    assert [timing.request.media_items[0].content for timing in timings] == ["a/cat", "b/cat"]
    assert [timing.request.content for timing in timings] == [(("a/s", 9), ("a/said", 4)), (("b/s", 9), ("b/said", 4))]
    assert [timing.e2e_us for timing in timings] == [70, 70]
