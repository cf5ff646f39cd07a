"""Extract the prose of a docstring: whole sentences without code, tables, signatures or markup."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator

KEPT_DIRECTIVES = {
    "note",
    "warning",
    "tip",
    "important",
    "caution",
    "attention",
    "hint",
    "deprecated",
    "admonition",
}
SECTION = re.compile(
    r"(args|arguments|parameters?|other parameters|keyword arguments|keyword args|kwargs|returns?|"
    r"raises?|yields?|attributes?|examples?|example usage|usage|notes?|references?|see also|"
    r"methods|warnings?|warns|todo|input|inputs|output|outputs|receives|members|fields|params|"
    r"sources?|citations?)\s*:*$",
    re.IGNORECASE,
)
DROPPED_SECTION = re.compile(
    r"(examples?|example usage|usage|references?|see also|methods|todo|sources?)\s*:*$", re.I
)
UNDERLINE = re.compile(r"([=\-~^*+#_.:\"'`])\1{2,}\s*$")
TABLE = re.compile(r"\s*(\||\+[-=+]{2}|[-=]{2,}\s+[-=]{2,}|.*\s\|\s.*\s\|)")
DIRECTIVE = re.compile(r"\s*\.\.\s+(?:([\w:-]+)::|\[|_|\||$|\w)")
FENCES = ("```", "~~~")
BREAKS = (">>>", "In [", "$ ", "..", "% ")  # a line that begins so ends a paragraph
BULLET = re.compile(r"\s*(?:[-*+•o]|\(?\d{1,2}[.)]|\(?[a-z]\)|#\.)\s+")
FIELD = re.compile(r"\s*:[\w ,*.~`\[\]-]+:\s*")
# "name (type): words", "*args: words". numpy's "name : type", with a space before the colon, is a
# header and no entry.
ENTRY = re.compile(
    r"\s*[`*\"']{0,3}[*\w][\w.*/ ,`'\"-]{0,60}?"
    r"(?:\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\]]*\])?(?<! ):\s+(?=\S)"
)
LABEL = re.compile(r"\s*[`*\w][\w.*/,`-]*(?:\s*\([^()]*\))?\s*(?::|--)\s+")

ROLE = re.compile(r":[\w:+-]+:`([^`]*)`")
LINK = re.compile(r"`([^`<]*?)\s*<[^>]*>`_*")
MARKDOWN_LINK = re.compile(r"!?\[([^\]]+)\]\([^)]*\)")
URL = re.compile(r"<?(?:https?|ftp)://\S+>?")
FOOTNOTE = re.compile(r"\s?\[(?:[\w#*+.-]+\]_|\d+\])")
TICKS = re.compile(r"`+([^`]*)`+_*")
STRONG = re.compile(r"(?<![\w*])(\*{1,2})(?=\S)([^*]+?)(?<=\S)\1(?![\w*])")
SUBSTITUTION = re.compile(r"\|(\w+)\|_*|@(\w+)\{([^{}]*)\}")

COMMON = frozenset(  # an English sentence has some of these words
    re.findall(
        r"\w+",
        "the a an of to is in and for if be this that with or are as by it from on not was which "
        "will can when at has have you we they its all any no but into than then each used using "
        "should may must only",
    )
)
ODD = re.compile(r"[=<>{}\[\]\\|@#$^~_%&*+`]|->|\(\)|::")
WORD = re.compile(r"[A-Za-z][a-z]*(?:[-'][a-z]+)*[,.;:!?)\"']*$")
# numpy's "name : type", or an import
CODE = re.compile(r"[\w.*, ]{1,60} : |(?:from [\w.]+ )?import \w")
ENDS = re.compile(r"[.!?](?:[\"')\]]|'')?$")


def paragraphs(docstring: str) -> list[str]:
    """Return the paragraphs of English prose, in order."""
    texts = map(_plain, _blocks(inspect.cleandoc(docstring).split("\n")))
    return [text if ENDS.search(text) else f"{text}." for text in texts if _is_english(text)]


def _blocks(lines: list[str]) -> Iterator[str]:
    """Join the lines of each paragraph or entry, without code and tables."""
    skip = _Skip(lines)
    held: list[str] = []
    indent = 0
    hanging = False  # deeper lines continue the current entry
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        bare = line.strip()
        depth = len(line) - len(line.lstrip())
        if bare.startswith(FENCES):
            skip.fenced = not skip.fenced
            continue
        if skip.is_code(bare):
            if held:
                yield " ".join(held)
            held = []
            continue
        underlined = bool(bare) and UNDERLINE.match(after.strip()) is not None
        heading = bool(bare) and (SECTION.match(bare) is not None or underlined)
        if bare and skip.covers(depth, heading):
            continue
        bullet = BULLET.match(line)
        starts = depth < indent or (depth > indent and not hanging) or bullet is not None
        stops = not bare or heading or bare.startswith(BREAKS) or TABLE.match(line) is not None
        if held and (starts or stops or FIELD.match(line) or (depth == indent and hanging)):
            text = " ".join(held)
            held = []
            if text.endswith("::"):
                skip.deeper = indent
                text = text[:-1]
                if depth > indent:
                    yield text
                    continue
            yield text
        if stops:
            skip.doctest = bare.startswith(">>>")
            if heading and DROPPED_SECTION.match(bare):
                skip.section = depth
            directive = DIRECTIVE.match(line)
            if directive:
                name, content = (directive.group(1) or "").lower(), bare.split("::", 1)[-1].strip()
                if name not in KEPT_DIRECTIVES:
                    skip.deeper = depth
                elif content and name != "deprecated":
                    held, indent, hanging = [content], depth, True
        elif held:
            held.append(bare)
        else:
            lead = bullet or FIELD.match(line) or ENTRY.match(line)
            held, indent, hanging = (
                [line[lead.end() :].strip() if lead else bare],
                depth,
                bool(lead),
            )
    if held:
        yield " ".join(held).removesuffix(":")


class _Skip:
    """The code and the sections of a docstring that are skipped at the current line."""

    def __init__(self, lines: list[str]):
        self.lines = lines
        self.fenced = self.doctest = False
        self.deeper = -1  # lines indented deeper than this belong to code
        self.section = -1  # lines indented at least this deep belong to a section that is dropped

    def is_code(self, bare: str) -> bool:
        """Tell whether a line is code, or an underline; a blank line ends a doctest."""
        self.doctest = self.doctest and bool(bare)
        return self.fenced or self.doctest or (bool(bare) and UNDERLINE.match(bare) is not None)

    def covers(self, depth: int, heading: bool) -> bool:
        """Tell whether a line is skipped for its indentation; if not, end the code or section."""
        if 0 <= self.deeper < depth:
            return True
        self.deeper = -1
        if self.section < 0:
            return False
        level = depth == self.section and not heading
        level = level and any(  # sections are underlined here
            SECTION.match(a.strip()) and UNDERLINE.match(b.strip())
            for a, b in itertools.pairwise(self.lines)
        )
        if depth > self.section or level:
            return True
        self.section = -1
        return False


def _plain(text: str) -> str:
    """Remove inline markup."""
    text = LABEL.sub("", text, count=1) if LABEL.match(text) and len(text) > 60 else text
    text = ROLE.sub(lambda m: m.group(1).split(" <")[0].split(".")[-1].lstrip("~!"), text)
    text = MARKDOWN_LINK.sub(r"\1", LINK.sub(r"\1", text))
    text = FOOTNOTE.sub("", URL.sub("", text))
    text = TICKS.sub(lambda m: m.group(1).lstrip(".~!"), text)
    text = STRONG.sub(r"\2", text)
    text = SUBSTITUTION.sub(lambda m: m.group(1) or m.group(3), text)
    text = text.replace("\\", "").replace("--", "-")
    return re.sub(r"\s+([,.;)])(?!\w)", r"\1", " ".join(text.split())).replace("()", "").strip()


def _is_english(text: str) -> bool:
    """Tell whether a paragraph is prose: whole sentences of ordinary words, with few symbols."""
    words = text.split()
    cut = text.endswith((":", ",", "-", ";"))  # a colon announces what was removed
    if len(words) < 3 or not text[0].isalnum() or cut or CODE.match(text):
        return False
    strict = not ENDS.search(text)  # a label, unless it has the length and the words of a sentence
    plain = sum(WORD.match(word.lstrip("\"'(")) is not None for word in words)
    common = sum(word.lower().strip(",.;:()") in COMMON for word in words)
    if strict and (len(words) < 5 or common < 2):
        return False
    enough = plain >= (0.85 if strict else 0.75) * len(words) and common >= 0.15 * len(words) - 0.5
    return enough and len(ODD.findall(text)) <= 0.1 * len(words)
