"""A system's configuration says in one line what is wrong, from Python too."""

from __future__ import annotations

import pickle

import pytest

from nandcosim.errors import InputError
from nandcosim.systems.dnova import Config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alpha": 0}, "Config: alpha: found 0, expected greater than or equal to 1"),
        ({"alfa": 2}, "Config: alfa: unknown, did you mean 'alpha'?"),
        ({"alpha": ()}, "Config: alpha: found (), an axis needs at least one value"),
        ({"alpha": (1, 1)}, "Config: alpha: found (1, 1), an axis has a value twice"),
    ],
)
def test_wrong_values_are_one_line(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Config(**values)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_configuration_is_a_value() -> None:
    config = Config(alpha=[1, 2])
    assert config == Config(alpha=(1, 2))
    assert pickle.loads(pickle.dumps(config)) == config
