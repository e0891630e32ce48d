"""The words of a drain's reason, as Slurm and those who read it can bear them."""

import re
import unicodedata

# Slurm prints reasons unquoted beside other fields, so what could end the field, start another, or be taken for
# the author ("[root@...]") is not let in. Quotes and the like are kept out for the sake of scripts that read them.
_SAFE = re.compile(r"[^A-Za-z0-9 .,:;%+()/_-]")


def plain(text: str) -> str:
    """Return text with only harmless characters: accents folded, the rest as spaces, runs of spaces as one."""
    folded = unicodedata.normalize("NFKD", text[:1000])
    folded = "".join(char for char in folded if not unicodedata.combining(char))
    return " ".join(_SAFE.sub(" ", folded).split())
