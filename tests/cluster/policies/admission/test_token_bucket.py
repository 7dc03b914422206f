"""``token-bucket``: prompts are paid from a bucket that refills."""

from blis_tui.cluster.policies.entry import TokenBucket, TokenBucketSettings
from tests.cluster.seen import Seen, context, fleet, incoming


def test_a_prompt_is_paid_or_turned_away() -> None:
    bucket, seen = TokenBucket(TokenBucketSettings(capacity_tokens=100, refill_tokens_per_s=1000)), fleet(Seen())

    def admits(tokens: int, now_us: int) -> bool:
        return not bucket.refusal(incoming(tokens), seen, context(now_us))

    assert admits(60, 0)  # 40 left
    assert not admits(41, 0)
    assert not admits(61, 20_000)  # 60
    assert admits(60, 20_000)
    assert not admits(101, 10**9)  # never more than 100
    assert admits(100, 10**9)
