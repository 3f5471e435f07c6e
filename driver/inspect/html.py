"""The contents of files as a self-contained HTML page: a treemap and tables.

Text from the files is escaped, and the page's content security policy allows only its own script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template

from mlir_offload.driver import __version__
from mlir_offload.driver.inspect.tree import TIMES, parameter_list, size_text
from mlir_offload.driver.inspect.treemap import TreemapRect, file_node, layout
from mlir_offload.driver.message.escape import shown
from mlir_offload.driver.system.workspace import open_output
from mlir_offload.offload.container.contents import (
    Entry,
    Image,
    Part,
    Problem,
    Section,
    SourceKernel,
    SourceModule,
    nested_images,
)
from mlir_offload.offload.device.kernel import DeviceKernel
from mlir_offload.toolchain.byte_view import write_all

_DATA = Path(__file__).parents[1] / "data"
_ASPECT = 2.0
_HUES = 8
_FEW_ROWS = 12
Row = Sequence[tuple[str, object]]
"""The cells of a row: the escaped text, and the sort key."""


def write_html(parts: Sequence[Part], output: Path) -> None:
    """Write the page. Raises InputOutputError."""
    with open_output(output) as descriptor:
        write_all(render_html(parts).encode(errors="replace"), descriptor)


def render_html(parts: Sequence[Part]) -> str:
    """Return the page for the files."""
    script = (_DATA / "inspect.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = Template((_DATA / "inspect.html").read_text(encoding="utf-8"))
    title = ", ".join(Path(part.name).name for part in parts)
    every = [item for part in parts for item in _with_members(part)]
    return template.substitute(
        title=_safe(title),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
        style=(_DATA / "inspect.css").read_text(encoding="utf-8"),
        script=script,
        files="".join(map(_file_summary, parts)),
        problems=_problems(every),
        map="".join(_boxes(parts)),
        legend="".join(_legend(every)),
        tables="".join(_tables(every)),
        generator=f"mlir-offload {__version__}",
    )


def _with_members(part: Part) -> Iterator[Part]:
    yield part
    for member in part.members:
        yield from _with_members(member)


def _safe(text: object) -> str:
    return escape(shown(str(text)), quote=True)


def _file_summary(part: Part) -> str:
    every = list(_with_members(part))
    images = [image for item in every for image in nested_images(item.images)]
    names = {k.name for image in images if image.code for k in image.code.kernels}
    archs = list(dict.fromkeys(image.arch for image in images if image.arch))
    facts = (
        ("format", part.form),
        ("size", size_text(part.size_bytes)),
        ("images", f"{len(images):,}"),
        ("kernels", f"{len(names):,}"),
        ("entries", f"{sum(len(item.entries) for item in every):,}"),
        ("architectures", ", ".join(archs) or "none"),
        *((("made by", "; ".join(part.producers)),) if part.producers else ()),
    )
    listed = "".join(f"<div><dt>{_safe(k)}</dt><dd>{_safe(v)}</dd></div>" for k, v in facts)
    return f"<section class=file><h2>{_safe(part.name)}</h2><dl>{listed}</dl></section>"


def _problems(parts: Iterable[Part]) -> str:
    found = [
        (part.name, problem)
        for part in parts
        for problem in (
            *part.problems,
            *(problem for image in nested_images(part.images) for problem in image.problems),
        )
    ]
    if not found:
        return "<p class=good>No problem was found.</p>"
    rows = "".join(_problem(name, problem) for name, problem in found)
    return f"<ul class=problems>{rows}</ul>"


def _problem(name: str, problem: Problem) -> str:
    hint = f"<br><small>{_safe(problem.hint)}</small>" if problem.hint else ""
    return f"<li><b>{_safe(name)}</b>: {_safe(problem.message)}{hint}</li>"


def _boxes(parts: Sequence[Part]) -> Iterator[str]:
    colours = _colours(item for part in parts for item in _with_members(part))
    for rect in layout([file_node(part) for part in parts], _ASPECT):
        yield _rectangle(rect, colours)


def _rectangle(rect: TreemapRect, colours: dict[str, int]) -> str:
    node = rect.node
    colour = f" h{colours[node.colour] % _HUES}" if node.colour in colours else ""
    place = f"--x:{_number(rect.left)};--y:{_number(rect.top)};--w:{_number(rect.width)};--h:{_number(rect.height)}"
    text = _safe(node.label)
    # The script displays the first line of the title as the label of the rectangle.
    return (
        f'<div class="b {node.role}{colour}" data-d={rect.depth} style="{place}"'
        f' title="{text}&#10;{_safe(node.detail)}"></div>\n'
    )


def _number(value: float) -> str:
    return f"{value * 100:.4f}".rstrip("0").rstrip(".")


def _colours(parts: Iterable[Part]) -> dict[str, int]:
    archs = (
        image.arch or image.kind or "host" for part in parts for image in nested_images(part.images)
    )
    return {arch: number for number, arch in enumerate(dict.fromkeys(archs))}


def _legend(parts: Iterable[Part]) -> Iterator[str]:
    for arch, number in _colours(parts).items():
        yield f'<li><i class="h{number % _HUES}"></i>{_safe(arch)}</li>'
    yield "<li><i class=host></i>host</li>"


def _tables(parts: Sequence[Part]) -> Iterator[str]:
    images = [(part, image) for part in parts for image in nested_images(part.images)]
    yield _table("Images", _IMAGE_COLUMNS, [_image_row(part, image) for part, image in images])
    groups = _kernel_groups(image for _, image in images)
    yield _table("Kernels", _KERNEL_COLUMNS, [_kernel_row(*pair) for pair in groups.items()])
    yield _table(
        "Entries",
        ("entry", "kind", "what", "size", "flags", "section", "read by LLVM", "file"),
        [_entry_row(entry, part) for part in parts for entry in part.entries],
    )
    modules = (module for part in parts for module in part.modules)
    yield _table(
        "Modules",
        ("kernel", "module", "symbol", "parameters", "known_block_size", "targets"),
        [_module_row(kernel, module) for module in modules for kernel in module.kernels],
    )
    yield _table(
        "Sections",
        ("section", "type", "offset", "size", "file"),
        [_section_row(section, part) for part in parts for section in part.sections],
    )


_IMAGE_COLUMNS = (
    *("#", "file", "kind", "arch", "format", "size"),
    *("stored", "offset", "container", "made by", "kernels", "sha256"),
)
_KERNEL_COLUMNS = (
    *("kernel", "parameters", "threads", "architectures", "images"),
    *("registers", "shared", "local", "code"),
)


def _module_row(kernel: SourceKernel, module: SourceModule) -> Row:
    return (
        _text(kernel.name),
        _text(module.name),
        _text(kernel.symbol),
        _text(", ".join(kernel.parameter_types)),
        _text(" ".join(map(str, kernel.known_block_size or ()))),
        _text(", ".join(module.targets)),
    )


def _section_row(section: Section, part: Part) -> Row:
    return (
        _word(section.name),
        _word(section.type),
        _count(section.offset),
        _size(section.size_bytes),
        _text(part.name),
    )


def _image_row(part: Part, image: Image) -> Row:
    container = image.container
    code = image.code
    return (
        _count(image.index),
        _text(part.name),
        _word(image.kind),
        _word(image.arch),
        _word(image.form),
        _size(image.size_bytes),
        _size(image.stored_bytes),
        _count(image.offset),
        _text(f"{container.form} {container.version or ''}".strip() if container else ""),
        _text(code.producer if code else ""),
        _count(len(code.kernels) if code else None),
        (f"<span class=hash>{_safe(image.sha256)}</span>", None),
    )


_Group = tuple[str, str, str]
"""The identity of a kernel for a launch: its name, its parameters, and the threads of its blocks."""


def _kernel_groups(images: Iterable[Image]) -> dict[_Group, list[tuple[DeviceKernel, Image]]]:
    """Return the kernels by identity, with their properties in each image."""
    groups: dict[_Group, list[tuple[DeviceKernel, Image]]] = {}
    for image in images:
        for kernel in image.code.kernels if image.code else ():
            key = (kernel.name, parameter_list(kernel.parameters), _threads(kernel))
            groups.setdefault(key, []).append((kernel, image))
    return groups


def _threads(kernel: DeviceKernel) -> str:
    threads, limit = kernel.required_threads, kernel.max_threads
    return TIMES.join(map(str, threads)) if threads else f"≤{limit}" if limit else ""


def _kernel_row(group: _Group, found: Sequence[tuple[DeviceKernel, Image]]) -> Row:
    name, parameters, threads = group
    kernels = [kernel for kernel, _ in found]
    return (
        _text(name),
        _text(parameters),
        (_safe(threads), kernels[0].max_threads or 0),
        _text(", ".join(dict.fromkeys(image.arch for _, image in found if image.arch))),
        _count(len(found)),
        _range([kernel.registers for kernel in kernels], str),
        _range([kernel.shared_bytes for kernel in kernels], size_text),
        _range([kernel.local_bytes for kernel in kernels], size_text),
        _range([kernel.code_bytes for kernel in kernels], size_text),
    )


def _range(values: Iterable[int | None], spell: Callable[[int], str]) -> tuple[str, object]:
    """Return the range of the values as text, and the maximum as sort key."""
    known = [value for value in values if value is not None]
    if not known:
        return "", -1
    least, most = min(known), max(known)
    return (spell(most) if least == most else f"{spell(least)} to {spell(most)}"), most


def _entry_row(entry: Entry, part: Part) -> Row:
    releases = f"{entry.first_release} to {entry.last_release}" if entry.first_release else "none"
    return (
        _text(entry.name),
        _word(entry.kind),
        _word(entry.what),
        _size(entry.size_bytes or None),
        _text(" ".join(entry.flags)),
        _word(entry.section),
        _word(releases),
        _text(part.name),
    )


def _text(value: object) -> tuple[str, object]:
    return _safe(value), None


def _word(value: object) -> tuple[str, object]:
    return f"<span class=word>{_safe(value)}</span>", None


def _count(value: int | None) -> tuple[str, object]:
    return ("", -1) if value is None else (str(value), value)


def _size(value: int | None) -> tuple[str, object]:
    return ("", -1) if value is None else (size_text(value), value)


def _table(title: str, headings: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a table, or an empty string without rows. Cells with a number are sorted by it."""
    if not rows:
        return ""
    head = "".join(f"<th scope=col><button type=button>{name}</button></th>" for name in headings)
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}" for row in rows)
    opened = " open" if title in {"Images", "Kernels"} or len(rows) <= _FEW_ROWS else ""
    search = (
        "<input type=search placeholder=Filter aria-label=Filter>" if len(rows) > _FEW_ROWS else ""
    )
    return (
        f"<details{opened}><summary><h2>{title}</h2> <small>{len(rows):,}</small></summary>{search}"
        f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
        "</details>"
    )


def _cell(cell: tuple[str, object]) -> str:
    text, key = cell
    if key is None:
        return f"<td>{text}"
    # The script reads the sort key from the text if that is the number itself, or empty for unknown.
    return f"<td data-v>{text}" if text == str(key) or not text else f"<td data-v={key}>{text}"
