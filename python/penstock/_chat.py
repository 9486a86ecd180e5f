"""Conversations as texts: a tokenizer's chat template, and where in its text the answers are.

Templates of Hugging Face seldom mark answers themselves. They are found by what the template makes
of the beginnings of a conversation: up to an answer, and up to its end.
"""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import jinja2
import jinja2.ext
import jinja2.sandbox

from penstock._errors import PenstockError
from penstock._rows import checked_text

_ANSWERS = "assistant"
_MOST_TEXT = 1 << 28
_MOST_PART = 1 << 24  # characters, or items of a list, that one operation makes
_FORMS = ("format", "format_map")
_FILLING = ("ljust", "rjust", "center", "zfill", "expandtabs", "indent", "batch")
#: A width that is no number in the text: "%*d", "{:{}}".
_WIDTH_GIVEN = re.compile(r"%(\(.*\))?[-+ #0]*[0-9]*\.?\*|\{[^{}]*\{", re.DOTALL)
Message = Mapping[str, Any]


class _Generation(jinja2.ext.Extension):
    """``{% generation %}``, with which some templates mark answers: what is in it stays."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _bound(size: int) -> None:
    if size > _MOST_PART:
        raise jinja2.sandbox.SecurityError(
            "it multiplies texts or numbers, or makes them wider, beyond any need: expected at "
            f"most {_MOST_PART} characters"
        )


def _bound_call(name: str, value: Any, given: Sequence[Any]) -> None:
    """Of a method or a filter that makes texts longer by a number."""
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if name in _FORMS:  # whose widths stand in the text itself
        text = str(value)
        if _WIDTH_GIVEN.search(text.replace("{{", "").replace("}}", "")):
            raise jinja2.sandbox.SecurityError(f"{text!r:.40}: expected widths as numbers in it")
        for number in re.findall("[0-9]+", text):
            _bound(int(number[-20:]) if len(number.lstrip("0")) <= 20 else _MOST_PART + 1)
    elif name in _FILLING:
        widths = [one if isinstance(one, int) else len(one) for one in given
                  if isinstance(one, (int, str))]  # fmt: skip
        lines = 1 + max(map(value.count, "\n\t")) if isinstance(value, str) else 1
        _bound(max(widths, default=0) * lines)


def _bounded_filter(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def bounded(value: Any, *args: Any, **kwargs: Any) -> Any:
        _bound_call(name, value, (*args, *kwargs.values()))
        return run(value, *args, **kwargs)

    return bounded


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """A template comes with a model, so from anybody: it reads messages and makes a text."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            _bound(_MOST_PART + 1)
        elif operator == "%" and isinstance(left, (str, bytes)):
            _bound_call("format", left, ())
        elif operator == "*":
            for one, times in ((left, right), (right, left)):
                if isinstance(times, int) and isinstance(one, int):
                    _bound(one.bit_length() + times.bit_length())
                elif isinstance(times, int) and hasattr(one, "__len__"):
                    _bound(len(one) * times)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Any:
        made = super().wrap_str_format(value)
        if made is not None:
            _bound_call("format", value.__self__, ())
        return made

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        value = getattr(__obj, "__self__", None)
        if isinstance(value, (str, bytes)):
            _bound_call(getattr(__obj, "__name__", ""), value, (*args, *kwargs.values()))
        return super().call(__context, __obj, *args, **kwargs)


def _refuse(message: Any) -> None:
    raise jinja2.TemplateRuntimeError(str(message))


def _json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
          sort_keys: bool = False) -> str:  # fmt: skip
    if isinstance(indent, (int, str)):
        _bound(1024 * (indent if isinstance(indent, int) else len(indent)))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)  # fmt: skip


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


class ChatTemplate:
    """A template as transformers runs it, and in a sandbox."""

    def __init__(self, source: str, name: str, special: Mapping[str, str]) -> None:
        """`special`: what the template may call by name, such as ``bos_token``. Raises
        PenstockError with the template's line where it is none."""
        self._name = name
        self._special = dict(special)
        made = _Sandbox(
            trim_blocks=True, lstrip_blocks=True,
            extensions=[_Generation, jinja2.ext.loopcontrols],
        )  # fmt: skip
        for filter_name in ("center", "indent", "batch", "format"):
            made.filters[filter_name] = _bounded_filter(filter_name, made.filters[filter_name])
        made.filters["tojson"] = _json
        made.globals.pop("lipsum", None)  # any number of words
        made.globals["raise_exception"] = _refuse
        made.globals["strftime_now"] = _now
        try:
            self._template = made.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise PenstockError(
                f"{name}: expected a chat template (Jinja), found in its line {error.lineno}: "
                f"{error.message}"
            ) from None
        except Exception as error:
            raise PenstockError(f"{name}: expected a chat template (Jinja): {error}") from None

    def text(self, messages: Sequence[Message], tools: Any, place: str, prompt: bool) -> str:
        """`prompt`: ends where an answer begins. Raises PenstockError."""
        pieces, size = [], 0
        try:
            for piece in self._template.generate(
                messages=list(messages), tools=tools, documents=None,
                add_generation_prompt=prompt, **self._special,
            ):  # fmt: skip
                pieces.append(piece)
                size += len(piece)
                if size > _MOST_TEXT:
                    raise PenstockError(
                        f"{place}: the chat template ({self._name}) makes more than "
                        f"{_MOST_TEXT >> 20} MiB of a conversation"
                    )
        except PenstockError:
            raise
        except Exception as error:  # of the template, which may do anything
            raise PenstockError(
                f"{place}: the chat template ({self._name}) refuses the conversation: {error}"
            ) from None
        return "".join(pieces)

    def spans(
        self, messages: Sequence[Message], tools: Any, place: str, ends: Sequence[str]
    ) -> tuple[str, list[tuple[int, int]]]:
        """The text of a conversation, and where in it its answers are, each with the token that
        ends it (one of `ends`) if it has one. Raises PenstockError where the text has not all that
        is said, or where answers cannot be found in it."""
        whole = self.text(messages, tools, place, prompt=False)
        checked_text(whole, place, f"what the chat template ({self._name}) writes")
        spans = []
        for k, message in enumerate(messages):
            if message["content"].strip() not in whole:
                raise PenstockError(
                    f"{place}: the chat template ({self._name}) leaves out what messages[{k}] says"
                )
            if message["role"] != _ANSWERS:
                continue
            before = self.text(messages[:k], tools, place, prompt=True)
            after = self.text(messages[: k + 1], tools, place, prompt=False)
            if not (after.startswith(before) and whole.startswith(after)):
                raise PenstockError(
                    f"{place}: the chat template ({self._name}) writes the conversation up to "
                    f"messages[{k}] otherwise than the whole one, so that the answer cannot be "
                    "found: make a conversation for each answer, or give a template that only adds"
                )
            answer = whole[len(before) : len(after)]
            if message["content"].strip() not in answer:
                raise PenstockError(
                    f"{place}: what the chat template ({self._name}) writes behind the beginning "
                    f"of an answer is not what messages[{k}] says: {answer!r:.60}"
                )
            # White space behind the end of a turn is the template's, and never generated.
            said = answer.rstrip()
            is_ended = any(said.endswith(one) for one in ends)
            spans.append((len(before), len(before) + len(said if is_ended else answer)))
        return whole, spans


def find_template(
    tokenizer: Path, special: Mapping[str, str], template: Path | None
) -> ChatTemplate | None:
    """The template in the file `template`, or beside a tokenizer.json: chat_template.jinja, or that
    of tokenizer_config.json. None: there is none."""
    folder = tokenizer.parent
    if template is None and (folder / "chat_template.jinja").is_file():
        template = folder / "chat_template.jinja"
    if template is not None:
        try:
            return ChatTemplate(template.read_text(encoding="utf-8"), str(template), special)
        except OSError as error:
            raise PenstockError(f"cannot read {template}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise PenstockError(f"{template}: expected a chat template in UTF-8") from None
    path = folder / "tokenizer_config.json"
    found = tokenizer_config(tokenizer).get("chat_template")
    if isinstance(found, list):  # several by name
        named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
        found = named.get("default")
    if found is None:
        return None
    if not isinstance(found, str):
        raise PenstockError(f"{path}: 'chat_template': expected a text")
    return ChatTemplate(found, str(path), special)


def tokenizer_config(tokenizer: Path) -> dict[str, Any]:
    """What lies beside a tokenizer.json; empty: nothing. Raises PenstockError."""
    path = tokenizer.parent / "tokenizer_config.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise PenstockError(f"{path}: expected an object of JSON: {error}") from None
    if not isinstance(found, dict):
        raise PenstockError(f"{path}: expected an object of JSON")
    return found


def named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Of a tokenizer_config.json: ``eos_token`` and so on, as texts."""
    found = {}
    for key, value in config.items():
        if isinstance(value, dict):
            value = value.get("content")
        if key.endswith("_token") and isinstance(value, str):
            found[key] = value
    return found
