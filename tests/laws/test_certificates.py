"""To come."""


def test_nothing_yet():
    assert True
