"""The versions of libraries, whatever name they are installed under."""

from __future__ import annotations

import numpy

from karat.retrieve.user_code import library_versions


def test_a_library_is_named_as_it_is_imported_and_may_be_installed_under_another_name():
    import sklearn

    expected = {"numpy": numpy.__version__, "sklearn": sklearn.__version__}
    assert library_versions("numpy", "sklearn") == expected


def test_a_library_that_was_never_installed_has_no_known_version():
    assert library_versions("no_such_library") == {"no_such_library": "unknown"}
