from pathlib import Path

from tests.golden_text import compare


def test_missing_file_differs_and_shows_the_text(tmp_path: Path) -> None:
    assert "does not exist; the new text is:\na\n" in compare(tmp_path / "x.txt", "a", accept=False)
    assert not list(tmp_path.iterdir())


def test_accept_writes_and_then_agrees(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.txt"
    assert compare(path, "a\nb\n\n", accept=True) == ""
    assert path.read_text() == "a\nb\n"
    assert compare(path, "a\nb", accept=False) == ""


def test_difference_is_a_unified_diff(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    compare(path, "a\nb\nc", accept=True)
    assert compare(path, "a\nB\nc", accept=False).splitlines() == [
        "--- expected/x.txt",
        "+++ new",
        "@@ -1,3 +1,3 @@",
        " a",
        "-b",
        "+B",
        " c",
    ]


def test_accept_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    compare(path, "a", accept=True)
    compare(path, "b", accept=True)
    assert path.read_text() == "b\n"
