"""Gather the site's pages: every README, what it links to, and a reference of each room.

mkdocs calls the functions below by their names (`hooks` in mkdocs.yml). Nothing is copied: a page
is read where it stands, so that its links hold both in the checkout and on the site.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

import pymdownx.slugs
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
# What user files import; the other rooms follow, each with a page.
PUBLIC = ("api", "config", "studies.definition", "recipes", "errors")


def find_pages() -> list[str]:
    """List the Markdown files of the checkout, without the templates of issues."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.splitlines() if not name.startswith(".github/")]


def find_linked(page: str) -> set[str]:
    """Return the files of the checkout that a page links to."""
    folder = (ROOT / page).parent
    targets = (folder / match[2] for match in LINK.finditer((ROOT / page).read_text()))
    return {str(t.resolve().relative_to(ROOT)) for t in targets if t.is_file()}


def write_references() -> dict[str, str]:
    """Return the pages of the reference: names and texts, in which mkdocstrings fills each :::."""
    modules = {"Python API": [f"bert_jax.{name}" for name in PUBLIC]}
    for file in sorted((ROOT / "bert_jax").rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        room = parts[1] if len(parts) > 2 else "top level"
        name = ".".join(parts).removesuffix(".__init__")
        if name != "bert_jax" and name not in modules["Python API"]:
            modules.setdefault(room, []).append(name)
    texts = {}
    for room, names in modules.items():
        path = f"reference/{room.lower().replace(' ', '_')}.md"
        texts[path] = "\n\n".join([f"# {room}", *(f"::: {name}" for name in names)])
    return texts


def on_config(config: Any) -> Any:
    """Name headings as GitHub does, and add to the contents what is found in folders."""
    config.mdx_configs["toc"]["slugify"] = pymdownx.slugs.slugify(case="lower")
    studies = [page for page in find_pages() if re.fullmatch(r"experiments/\w+/README\.md", page)]
    next(entry for entry in config.nav if "Experiments" in entry)["Experiments"] += studies
    config.nav.append({"Reference": list(write_references())})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add pages, what they link to, and the reference."""
    for file in files.documentation_pages():
        files.remove(file)  # pages of docs/, which come again below by their path in the checkout
    pages = find_pages()
    for name in sorted({*pages, *set().union(*map(find_linked, pages))}):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for name, text in write_references().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links to a folder lead to its README; name a folder that has none."""
    folder = (ROOT / page.file.src_uri).parent

    def turn(match: re.Match) -> str:
        target = folder / match[2]
        if not target.is_dir():
            return match[0]
        if (target / "README.md").exists():
            return f"[{match[1]}]({match[2].rstrip('/')}/README.md{match[3] or ''})"
        return f"{match[1]} (`{target.resolve().relative_to(ROOT)}`)"

    markdown = markdown.replace("<details>", '<details markdown="1">')
    markdown = markdown.replace("] [", "]  [")  # [MASK] [MASK] is no link
    return LINK.sub(turn, markdown)
