"""Tests that plug-ins must pass; import the files of this package.

In: a plug-in's model family, policy, testbed, counter reader or enforcer. Out: passed or failed tests. Begin at the
contract of your kind of plug-in; `builders` has a testbed defined by one formula.
"""
