"""Texts from outside, as a database can keep them, a log can write them and a terminal cannot obey them."""


def visible(text: str, most: int) -> str:
    r"""What can be seen stays, all else is escaped: ``\x1b``, ``\u202e``, ``\ud800``.

    Args:
        most: Characters; what is longer ends in ``...``, which no number does.
    """
    if len(text) <= most and text.isprintable():
        return text
    # Escaping makes no text shorter.
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."
