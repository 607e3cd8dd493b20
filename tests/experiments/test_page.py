"""The page and the table of a reproduction: everything escaped, one line per claim, what it cost."""

from gradless.experiments.claims import judge
from gradless.experiments.page import claims_as_markdown, cost_in_words, write_page
from gradless.experiments.tables import COSTS, write_table

HOSTILE = judge("F1a", "<script>alert(1)</script>", "a | b", "rule", holds=True, differs="<b>")


def test_words_of_a_claim_are_text_in_the_page_and_cells_in_the_table(tmp_path):
    page = write_page(tmp_path, "smoke", ["F1"], [HOSTILE]).read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)" in page
    header, rule, line = claims_as_markdown([HOSTILE]).splitlines()
    assert line.replace("\\|", "").count("|") == header.count("|") == rule.count("|")
    assert (tmp_path / "claims.md").read_text().splitlines()[2] == line


def test_what_a_figure_has_cost(tmp_path):
    assert cost_in_words(tmp_path) == ""
    rows = [{"run": f"r{seed}", "seed": seed, "chains": 2, "steps": 10, "seconds": 45.0} for seed in (0, 3)]
    write_table(tmp_path / COSTS, rows)
    assert cost_in_words(tmp_path) == "4 chains in 2 runs, seeds 0 to 3, 1.5 min of training."
    write_table(tmp_path / COSTS, [rows[0] | {"chains": 1, "seconds": 7200.0}])
    assert cost_in_words(tmp_path) == "1 chain in 1 run, seed 0, 2.0 h of training."
