"""The three ways in which a case, an assertion or a translation ends otherwise
than well."""


class Failed(Exception):
    """The assertion does not hold; the text says what was found and expected."""


class Missing(Exception):
    """Cannot be run as stated; the text names the missing feature."""


class Refused(Exception):
    """Heddle refused the input in a proper way (exit code 1 or 2 and a message);
    the text is that message."""
