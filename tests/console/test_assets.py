"""The console's page is ours but for one library, which is as it was published."""

import hashlib
import re

from federator.console.guard import POLICY
from federator.console.web import ASSETS, asset

CYTOSCAPE = "71fa9ebec21a7ca2c40cff6aacc30d1f6464e363662ad4b2c197e1adc770cd94"
"""SHA-256 of dist/cytoscape.min.js in the npm package cytoscape 3.35.0."""


def test_the_library_is_the_one_that_was_published():
    assert hashlib.sha256(asset("cytoscape.min.js")).hexdigest() == CYTOSCAPE
    assert b"Permission is hereby granted, free of charge" in asset("cytoscape.LICENSE")


def test_the_page_names_only_files_that_are_served():
    page = asset("console.html").decode()
    named = re.findall(r'(?:src|href)="/assets/([^"]+)"', page)

    assert set(named) <= set(ASSETS)
    assert "http:" not in page
    assert "https:" not in page


def test_the_policy_allows_no_script_and_no_style_but_our_files():
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'")
    assert b"style=" not in asset("console.html")
    assert b"<script>" not in asset("console.html")


def test_our_scripts_make_no_html_of_text():
    for name in ("console.js", "map.js"):
        text = asset(name).decode()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
