"""``lora-affinity``: 1 where the adapter is, 0 elsewhere."""

from blis_tui.cluster.policies.scoring import LoraAffinity, Weight
from tests.cluster.seen import Seen, fleet, incoming

THREE = fleet(Seen(adapters=("sql",)), Seen(), Seen(adapters=("chat", "sql")))


def test_where_the_adapter_is_it_need_not_be_loaded() -> None:
    scorer = LoraAffinity(Weight())
    assert scorer.scores(incoming(adapter="sql"), THREE) == [1.0, 0.0, 1.0]
    assert scorer.scores(incoming(adapter="chat"), THREE) == [0.0, 0.0, 1.0]


def test_an_adapter_that_nobody_has_is_as_good_anywhere() -> None:
    assert LoraAffinity(Weight()).scores(incoming(adapter="new"), THREE) == [0.0, 0.0, 0.0]


def test_the_base_model_is_everywhere() -> None:
    assert LoraAffinity(Weight()).scores(incoming(), THREE) == [1.0, 1.0, 1.0]
