"""Tables of notebooks."""

from blis_tui.base.html import html_table


def test_texts_are_escaped_and_numbers_are_short() -> None:
    shown = html_table("<b>", ["a&b"], [["<script>"], [None], [1234567.891], [0.000123456], [3.0]], ["1 < 2"])
    assert "<script>" not in shown
    assert "<b>" not in shown
    for text in ("&lt;b&gt;", "a&amp;b", "&lt;script&gt;", ">1,234,568<", ">0.0001235<", ">3<", "<p>1 &lt; 2</p>"):
        assert text in shown
