"""The English of a docstring: paragraphs of whole sentences, without code, tables, signatures and markup."""

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
    r"(args|arguments|parameters?|other parameters|keyword arguments|keyword args|kwargs|returns?|raises?|yields?|"
    r"attributes?|examples?|example usage|usage|notes?|references?|see also|methods|warnings?|warns|todo|"
    r"input|inputs|output|outputs|receives|members|fields|params|sources?|citations?)\s*:*$",
    re.IGNORECASE,
)
DROPPED_SECTION = re.compile(
    r"(examples?|example usage|usage|references?|see also|methods|todo|sources?)\s*:*$", re.I
)
UNDERLINE = re.compile(r"([=\-~^*+#_.:\"'`])\1{2,}\s*$")
TABLE = re.compile(r"\s*(\||\+[-=+]{2}|[-=]{2,}\s+[-=]{2,}|.*\s\|\s.*\s\|)")
DIRECTIVE = re.compile(r"\s*\.\.\s+(?:([\w:-]+)::|\[|_|\||$|\w)")
BULLET = re.compile(r"\s*(?:[-*+•o]|\(?\d{1,2}[.)]|\(?[a-z]\)|#\.)\s+")
FIELD = re.compile(r"\s*:[\w ,*.~`\[\]-]+:\s*")
# "name (type): words", "*args: words"; numpy's "name : type" has a space before the colon and is a header.
ENTRY = re.compile(
    r"\s*[`*\"']{0,3}[*\w][\w.*/ ,`'\"-]{0,60}?(?:\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\]]*\])?(?<! ):\s+(?=\S)"
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

COMMON = frozenset(  # an English sentence has some of these
    re.findall(
        r"\w+",
        "the a an of to is in and for if be this that with or are as by it from on not was which will can when at has "
        "have you we they its all any no but into than then each used using should may must only",
    )
)
ODD = re.compile(r"[=<>{}\[\]\\|@#$^~_%&*+`]|->|\(\)|::")
WORD = re.compile(r"[A-Za-z][a-z]*(?:[-'][a-z]+)*[,.;:!?)\"']*$")
CODE = re.compile(
    r"[\w.*, ]{1,60} : |(?:from [\w.]+ )?import \w"
)  # numpy's "name : type", an import
ENDS = re.compile(r"[.!?](?:[\"')\]]|'')?$")


def paragraphs(docstring: str) -> list[str]:
    """Paragraphs of English prose, in order."""
    found = map(_plain, _blocks(inspect.cleandoc(docstring).split("\n")))
    return [text if ENDS.search(text) else f"{text}." for text in found if _is_english(text)]


def _blocks(lines: list[str]) -> Iterator[str]:
    """Runs of lines that belong together, code and tables left out."""
    held: list[str] = []
    indent = 0
    hanging = False  # deeper lines continue the entry at hand
    skip_deeper = -1  # lines indented deeper than this belong to code
    skip_section = -1  # and from this on, to a section of examples
    fenced = doctest = False
    for number, line in enumerate(lines):
        bare = line.strip()
        depth = len(line) - len(line.lstrip())
        after = lines[number + 1] if number + 1 < len(lines) else ""
        underlined = bool(bare) and UNDERLINE.match(after.strip()) is not None
        if bare.startswith(("```", "~~~")):
            fenced = not fenced
            continue
        if doctest:
            doctest = bool(bare)
        if fenced or doctest or (bare and UNDERLINE.match(bare)):
            if held:
                yield " ".join(held)
            held = []
            continue
        if bare and skip_deeper >= 0:
            if depth > skip_deeper:
                continue
            skip_deeper = -1
        heading = bool(bare) and (SECTION.match(bare) is not None or underlined)
        if bare and skip_section >= 0:
            if (
                depth < skip_section
                or (heading and depth == skip_section)
                or depth == skip_section == -2
            ):
                skip_section = -1
            elif depth > skip_section or _sections_are_underlined(lines):
                continue
            else:
                skip_section = -1
        starts = (
            not held
            or depth < indent
            or (depth > indent and not hanging)
            or BULLET.match(line) is not None
        )
        stops = (
            not bare
            or heading
            or bare.startswith((">>>", "In [", "$ ", "..", "% "))
            or TABLE.match(line) is not None
        )
        if held and (starts or stops or FIELD.match(line) or (depth == indent and hanging)):
            text = " ".join(held)
            held = []
            if text.endswith("::"):
                skip_deeper = indent
                text = text[:-1]
                if depth > indent:
                    yield text
                    continue
            yield text
        if stops:
            doctest = bare.startswith(">>>")
            if heading and DROPPED_SECTION.match(bare):
                skip_section = depth
            found = DIRECTIVE.match(line)
            if found:
                name = (found.group(1) or "").lower()
                if name not in KEPT_DIRECTIVES:
                    skip_deeper = depth
                elif bare.split("::", 1)[-1].strip() and name != "deprecated":
                    held, indent, hanging = [bare.split("::", 1)[-1].strip()], depth, True
            continue
        if not held:
            indent = depth
            label = FIELD.match(line) or ENTRY.match(line)
            bullet = BULLET.match(line)
            hanging = label is not None or bullet is not None
            held = [
                line[bullet.end() :].strip()
                if bullet
                else line[label.end() :].strip()
                if label
                else bare
            ]
        else:
            held.append(bare)
    if held:
        yield " ".join(held).removesuffix(":")


def _sections_are_underlined(lines: list[str]) -> bool:
    return any(
        SECTION.match(a.strip()) and UNDERLINE.match(b.strip())
        for a, b in itertools.pairwise(lines)
    )


def _plain(text: str) -> str:
    """The text without inline markup."""
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
    """Whether a paragraph reads as prose: whole sentences of ordinary words, few symbols."""
    words = text.split()
    if (
        len(words) < 3
        or not text[0].isalnum()
        or text.endswith((":", ",", "-", ";"))
        or CODE.match(text)
    ):
        return False  # a paragraph that ends in a colon announced what was removed
    strict = not ENDS.search(text)  # a label, unless it has the length and the words of a sentence
    plain = sum(WORD.match(word.lstrip("\"'(")) is not None for word in words)
    common = sum(word.lower().strip(",.;:()") in COMMON for word in words)
    if strict and (len(words) < 5 or common < 2):
        return False
    enough = plain >= (0.85 if strict else 0.75) * len(words) and common >= 0.15 * len(words) - 0.5
    return enough and len(ODD.findall(text)) <= 0.1 * len(words)
