"""Tools for whoever changes the tests."""
