"""Options: merging, what each accepts, and the words of every rejection."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helion_inductor.errors import HelionError, OptionError
from helion_inductor.option_rules import FAMILIES, RULES, FrozenMap
from helion_inductor.options import Options

VARIABLE = "HELION_INDUCTOR_OPTIONS"
ROOT = Path(__file__).parents[1]
ALL_NAMES = ", ".join(RULES)


def rejection(options: object, mode: str | None = None) -> str:
    with pytest.raises(OptionError) as caught:
        Options.from_mapping(options, mode)  # type: ignore[arg-type]
    return str(caught.value)


# ---------------------------------------------------------------- merging


def test_defaults() -> None:
    assert Options.from_mapping() == Options.from_mapping({}) == Options.from_mapping(None, "default") == Options()


def test_every_field_but_the_mode_is_an_option_and_documented() -> None:
    names = [f.name for f in dataclasses.fields(Options)]
    assert [*Options.names(), "mode"] == names


def test_given_wins_over_environment_wins_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, '{"regions": "all", "num_warps": 8, "ops": {"aten.mm": true}}')
    options = Options.from_mapping({"num_warps": 2, "ops": {"scan": False}}, "reduce-overhead")
    assert (options.regions, options.num_warps, options.num_stages) == ("all", 2, None)
    assert options.ops == {"scan": False}, "a mapping is replaced, not joined"
    assert options.mode == "reduce-overhead"
    assert Options().regions == "auto", "only from_mapping reads the environment"


@pytest.mark.parametrize("text", ["", "  ", "{}"])
def test_empty_environment_means_nothing(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert Options.from_mapping() == Options()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", f"{VARIABLE}: not valid JSON ("),
        ("[1]", f"{VARIABLE}: options are [1]; they must be a mapping from names to values"),
        ('{"regoins": "all"}', f"{VARIABLE}: unknown option 'regoins', did you mean 'regions'?; valid options: "),
        (
            '{"num_warps": "4"}',
            f"{VARIABLE}: option 'num_warps' is '4'; it must be a power of two from 1 to 32, or None",
        ),
        ('{"numerics": "strict"}', f"{VARIABLE}: option 'numerics' is 'strict', which is not available"),
    ],
)
def test_errors_of_the_environment_name_the_variable(monkeypatch: pytest.MonkeyPatch, text: str, words: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert rejection({}).startswith(words)


def test_given_mapping_is_copied() -> None:
    given_ops = {"aten.mm": True}
    options = Options.from_mapping({"ops": given_ops})
    given_ops["aten.mm"] = False
    assert options.ops["aten.mm"] is True


# ---------------------------------------------------------------- rejections


def test_unknown_option() -> None:
    assert (
        rejection({"numwarps": 4})
        == f"unknown option 'numwarps', did you mean 'num_warps'?; valid options: {ALL_NAMES}"
    )
    assert rejection({"zzz": 4}) == f"unknown option 'zzz'; valid options: {ALL_NAMES}"
    assert rejection({3: 4}) == f"unknown option 3; valid options: {ALL_NAMES}"
    assert rejection({"mode": "default"}).startswith("unknown option 'mode'")
    assert rejection([("regions", "all")]).startswith("options are [('regions', 'all')]; they must be a mapping")


def test_unknown_mode() -> None:
    assert rejection({}, "max-autotun") == (
        "mode 'max-autotun' is unknown, did you mean 'max-autotune'?; "
        "valid modes: default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs"
    )


WRONG = {
    "ops": [None, {"aten.mm": 1}, {"aten.mm": None}, {1: True}, {"mm": True}, {"aten.": True}, {"a.b.c.d": True}],
    "regions": ["some", None, True, ["all"]],
    "pid_type": ["persistent", "", 0],
    "num_sm_multiplier": [0, -1, 1.0, True, "2", None],
    "reserved_sms": [-1, 0.0, False, None],
    "loop_order": [None, "yx", [], ["x"], ["x", "x"], ["x", "r"], ["x", "y", "r"], [0, 1], {"x": 0, "y": 1}],
    "l2_grouping": [0, -8, True, None, 2.0, 2**31],
    "xcd_remap": [0, 1, None, "false"],
    "cross_loop": ["on", None, False],
    "block_sizes": [64, {"x": 0}, {"x": 48}, {"x": True}, {"r": 64.0}, {0: 64}, {"": 64}, {"q": 64}, [64]],
    "split_reductions": [0, 1, True, 4.0, "on", None],
    "num_warps": [0, 3, 64, True, 4.0, "4"],
    "num_stages": [0, 9, True, 2.0],
    "autotune": [True, None, "slow"],
    "autotune_budget_s": [0, -1, True, "10", float("nan"), float("inf"), None],
    "numerics": ["fast", None],
    "on_error": ["ignore", None, True],
    "dump": ["", 3, b"out", True],
    "inductor": [
        None,
        {1: 2},
        {"a": object()},
        {"a": (1, 2)},
        {"a": float("nan")},
        {"post_grad_custom_post_pass": None},
    ],
}


def test_the_table_of_wrong_values_covers_every_option() -> None:
    assert set(WRONG) == set(RULES)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_wrong_value_names_option_value_and_what_is_accepted(name: str, value: object) -> None:
    message = rejection({name: value})
    assert message.startswith(f"option {name!r} is {value!r}")
    assert message.endswith(f"; it must be {RULES[name].accepts}")
    with pytest.raises(OptionError, match=f"^option '{name}' is"):
        Options(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("numerics", "strict", "'default'"),
    ],
)
def test_values_that_are_not_honoured_yet_are_refused(name: str, value: object, instead: str) -> None:
    expected = f"option {name!r} is {value!r}, which is not available in this version; use {instead}"
    assert rejection({name: value}) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ops": {"mm": True}}, "('mm' is neither a family nor a dotted op name)"),
        ({"ops": {"reductions": True}}, "did you mean 'reduction'?"),
        ({"ops": {"aten.mm": "yes"}}, "(the value of 'aten.mm' is 'yes', not a bool)"),
        ({"ops": {2: True}}, "(its key 2 is not a string)"),
        ({"block_sizes": {"x": 48}}, "(the value of 'x' is 48)"),
        ({"inductor": {"x": (1,)}}, "(the value of 'x' is (1,), not plain JSON, which cache keys are made of)"),
        ({"inductor": {"post_grad_custom_post_pass": 1}}, "is the setting by which this backend works)"),
    ],
)
def test_rejections_of_mappings_point_at_the_entry(options: dict, words: str) -> None:
    assert words in rejection(options)


def test_long_values_are_cut() -> None:
    assert len(rejection({"dump": ["x" * 10_000]})) < 400


def test_rejection_is_a_value_error_and_ours() -> None:
    assert issubclass(OptionError, ValueError) and issubclass(OptionError, HelionError)


# ---------------------------------------------------------------- accepted values

RIGHT = {
    "ops": [{}, {"aten.mm": True, "attention": False, "aten.add.Tensor": True}, {"torchvision.nms": True}],
    "regions": ["auto", "all", "none"],
    "pid_type": ["auto", "flat", "persistent_blocked", "persistent_interleaved"],
    "num_sm_multiplier": [1, 4],
    "reserved_sms": [0, 16],
    "loop_order": ["auto", ("y", "x"), ("x", "y")],
    "l2_grouping": [1, 8, 2**31 - 1],
    "xcd_remap": [False, True],
    "cross_loop": ["auto", "off", "barrier"],
    "block_sizes": [None, {}, {"x": 64, "r": 1}, {"m": 16, "n": 64, "k": 32}],
    "split_reductions": ["auto", "off", 2, 4096],
    "num_warps": [None, 1, 32],
    "num_stages": [None, 1, 8],
    "autotune": ["off", "quick", "full"],
    "autotune_budget_s": [1, 0.5, 600],
    "numerics": ["default"],
    "on_error": ["fallback", "raise"],
    "dump": [None, "out/x"],
    "inductor": [{}, {"triton.cudagraphs": True, "x": [1, {"y": None}]}],
}


@pytest.mark.parametrize("name", list(RULES))
def test_right_values_are_kept(name: str) -> None:
    for value in RIGHT[name]:
        assert getattr(Options.from_mapping({name: value}), name) == value


def test_a_list_is_an_order_as_well() -> None:
    assert Options.from_mapping({"loop_order": ["x", "y"]}) == Options(loop_order=("x", "y"))


def test_every_family_is_accepted() -> None:
    assert len(Options(ops=FrozenMap(dict.fromkeys(FAMILIES, True))).ops) == 13


any_options = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in RIGHT.items()})


@given(any_options)
def test_values_survive_copies_and_compare_by_canonical_text(options: dict) -> None:
    one, two = Options.from_mapping(options), Options.from_mapping(dict(reversed(options.items())))
    assert one == two and hash(one) == hash(two) and one.canonical() == two.canonical()
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == dataclasses.replace(one) == one
    assert (one == Options()) == (one.canonical() == Options().canonical())
    plain = json.loads(one.canonical())
    assert plain.pop("mode") is None and set(plain) == set(RULES)
    assert Options.from_mapping(plain) == one


def test_canonical_text_is_equal_in_other_processes() -> None:
    code = "from helion_inductor.options import Options as O; print(O(ops={'b.c': True, 'a.b': False}).canonical())"
    texts = set()
    for seed in "12":
        run = [sys.executable, "-c", code]
        texts.add(subprocess.check_output(run, env={"PYTHONHASHSEED": seed}, cwd=ROOT, text=True))
    assert texts == {Options(ops=FrozenMap({"a.b": False, "b.c": True})).canonical() + "\n"}


def test_text_lists_every_option_and_marks_changes() -> None:
    text = str(Options.from_mapping({"num_warps": 8}, "max-autotune"))
    lines = text.splitlines()
    assert lines[0].split() == ["mode", "'max-autotune'"]
    assert [line.split()[0] for line in lines[1:]] == list(RULES)
    assert [line for line in lines if "default None" in line] == ["num_warps          8  (default None)"]
    assert "(default" not in str(Options())


# ---------------------------------------------------------------- the choice of ops

SOFTMAX = ["aten.sub.Tensor", "aten._softmax.default"]


@pytest.mark.parametrize(
    ("ops", "names", "families", "choice"),
    [
        ({}, SOFTMAX, ["reduction"], None),
        ({"aten.softmax": True}, SOFTMAX, ["pointwise"], True),
        ({"aten._softmax": False}, SOFTMAX, ["pointwise"], False),
        ({"aten.softmax": True, "aten._softmax": False}, SOFTMAX, [], False),
        ({"aten.softmax": True, "pointwise": False}, SOFTMAX, ["pointwise"], True),
        ({"pointwise": False}, SOFTMAX, ["pointwise"], False),
        ({"aten.sub": False, "aten.sub.Tensor": True}, SOFTMAX, [], True),
        ({"aten.sub.Scalar": True}, SOFTMAX, [], None),
        ({"aten.soft": True, "softmax.aten": True}, SOFTMAX, [], None),
        ({"aten.sub": False}, ["aten.rsub.Scalar"], ["pointwise"], None),
    ],
)
def test_the_most_specific_entry_decides(ops: dict, names: list, families: list, choice: bool | None) -> None:
    assert Options.from_mapping({"ops": ops}).op_choice(names, families) is choice
