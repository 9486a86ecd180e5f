#!/usr/bin/env bash
# LibreOffice's help: pages of two languages have the same paragraphs, but not in the same order.
#
# One would guess: the pages of libreoffice-help-en-us and libreoffice-help-de come from the same
# sources, under the same paths. All 2,560 pairs of pages have equally many headings and paragraphs,
# so paragraph i of one is the translation of paragraph i of the other.
#
# What happens: on 28 pages, lists of functions are sorted by the functions' names in each language.
# 5,635 paragraphs (7 %) stand at another place, and pairs by place are nonsense there: "OR(Logical
# 1 ...)" beside "Wenn A=WAHR ...". The paragraphs' ids are equal in all languages and match them.
#
# Versions: libreoffice-help-en-us and -de 4:7.4.7-1+deb12u14 (Debian 12). Date: 2026-11-29.
# Source: the pages themselves, as help/de/text/scalc/01/04060105.html.
#
# Output seen:
#   2560 pages, 0 with other numbers of paragraphs
#   28 pages with another order, 5635 paragraphs at another place
#   5 of 5 sampled pages of those have the same ids
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
version='4:7.4.7-1+deb12u14'
apt-get -qq download "libreoffice-help-en-us=$version" "libreoffice-help-de=$version"
for package in *.deb; do dpkg -x "$package" .; done

cat >program.py <<'PYTHON'
import pathlib
import re

root = pathlib.Path("usr/share/libreoffice/help")
tag = re.compile(r"<(?:p|h[1-6])\b([^>]*)>")


def ids(page):
    text = page.read_text(encoding="utf-8")
    text = text[text.index('<div id="DisplayArea"'):text.index('<div id="SearchFrame"')]
    found = [re.search('id="([^"]*)"', attributes) for attributes in tag.findall(text)]
    return [match.group(1) if match else None for match in found]


pages = sorted((root / "en-US/text").rglob("*.html"))
unequal = moved = 0
sorted_pages = []
for page in pages:
    english = ids(page)
    german = ids(root / "de" / page.relative_to(root / "en-US"))
    unequal += len(english) != len(german)
    places = sum(a != b for a, b in zip(english, german))
    moved += places
    if places:
        sorted_pages.append((english, german))
print(f"{len(pages)} pages, {unequal} with other numbers of paragraphs")
print(f"{len(sorted_pages)} pages with another order, {moved} paragraphs at another place")
both = sum(set(english) == set(german) for english, german in sorted_pages[:5])
print(f"{both} of 5 sampled pages of those have the same ids")
raise SystemExit(0 if unequal == 0 and len(sorted_pages) > 0 and both == 5 else 1)
PYTHON
python3 program.py
