"""``resources.gpus``: which GPUs a job accepts, and whether such GPUs exist at all."""

import re
from collections.abc import Iterable
from dataclasses import replace

from broker.core.errors import SpecError
from broker.core.gpu import FAMILIES, GPUS, GpuModel
from broker.core.spec import MAX_GPUS_PER_NODE, GpuRequest
from broker.core.yaml_text import Mapped, Node, Scalar, Sequence, did_you_mean
from broker.jobs import later

FORMS = ("SXM", "PCIe", "NVL")
_SHORT = re.compile(r"([^:\s]+)(?:\s*:\s*(-?[0-9]+))?")
_MEMORY = re.compile(r"(>=)?\s*([0-9]{1,9})\s*GiB")
_SKY = re.compile(r"([A-Za-z0-9]+)-([0-9]+)GB")
_EXAMPLE = "H100:8, or {type: A100, count: 8, memory: 80GiB}, or a list of alternatives"


def read_gpus(node: Node) -> tuple[GpuRequest, ...]:
    """The alternatives, in the order of the file."""
    if not isinstance(node, Sequence):
        return (_read_one(node),)
    if not len(node):
        raise node.fail(f"{node.name} is empty", f"write {_EXAMPLE}")
    return tuple(_read_one(item) for item in node)


def check_gpu(request: GpuRequest) -> GpuRequest:
    """The request, with its names spelled as ours.

    Raises:
        SpecError: no such GPU exists; without a place.
    """
    return _check(request, exact_memory=False)


def _read_one(node: Node) -> GpuRequest:
    if isinstance(node, Mapped):
        return _read_mapping(node)
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        raise node.wrong("a GPU", f"write {_EXAMPLE}")
    match = _SHORT.fullmatch(node.value.strip())
    if match is None:
        raise node.fail(f"{node.name}: {node.value!r} is not a GPU", f"write {_EXAMPLE}")
    # Nine digits are more than enough; Python does not read thousands of them.
    return _at(node, GpuRequest(match[1], int((match[2] or "1")[:9])))


def _read_mapping(node: Mapped) -> GpuRequest:
    for key in node:
        if key.split("-")[0].upper() in {
            family.upper() for family in FAMILIES
        }:  # `H100: 8` instead of `H100:8`
            count = node[key].value
            raise node.fail(
                f"{node.name}: expected type and count, got {key}",
                f"write {key}:{count or 1}, without a space",
            )
    node.only(("type", "count", "memory", "form"), later.GPU)
    kind = node.need("type")
    request = GpuRequest(kind.as_str())
    if (count_node := node.get("count")) is not None:
        request = replace(request, count=count_node.as_int(1, MAX_GPUS_PER_NODE))
    _at(
        kind, GpuRequest(request.type, request.count)
    )  # an unknown type is the type's fault, not the memory's
    if (form_node := node.get("form")) is not None:
        request = _at(form_node, replace(request, form=_form(form_node)))
    if (memory_node := node.get("memory")) is not None:
        match = _MEMORY.fullmatch(str(memory_node.value))
        if match is None:
            raise memory_node.wrong('GiB of each GPU, such as 80GiB or ">=80GiB"')
        exact = match[1] is None
        request = _at(memory_node, replace(request, memory_gib_min=int(match[2])), exact_memory=exact)
    return _at(kind, request)


def _form(node: Node) -> str:
    by_folded = {form.casefold(): form for form in FORMS}
    text = node.as_str()
    return by_folded.get(text.casefold()) or node.as_choice(FORMS)


def _at(node: Node, request: GpuRequest, *, exact_memory: bool = False) -> GpuRequest:
    try:
        return _check(request, exact_memory=exact_memory)
    except SpecError as error:
        raise node.fail(f"{node.name}: {error.message}", error.hint) from None


def _check(request: GpuRequest, *, exact_memory: bool) -> GpuRequest:
    if request.count < 1:
        raise SpecError(f"{request.count} GPUs is less than 1")
    if request.count > MAX_GPUS_PER_NODE:
        raise SpecError(
            f"more than {MAX_GPUS_PER_NODE} GPUs in one node", hint="for several nodes: resources.nodes"
        )
    kind, models = _models(request.type)
    request = replace(request, type=kind)
    if request.form is not None:
        formed = [model for model in models if model.form == request.form]
        if not formed:
            raise SpecError(f"there is no {kind} with form {request.form}", hint=_there_are(models))
        models = formed
    sizes = {model.memory_gib for model in models}
    wanted = request.memory_gib_min
    if wanted > max(sizes) or (exact_memory and wanted not in sizes):
        name = f"{kind} {request.form}" if request.form else kind
        raise SpecError(f"there is no {name} with {wanted} GiB", hint=_there_are(models))
    return request


def _models(text: str) -> tuple[str, list[GpuModel]]:
    """Our spelling of a family or SKU, and the models that it covers."""
    for name in (*FAMILIES, *GPUS):
        if name.casefold() == text.casefold():
            return name, [model for model in GPUS.values() if name in (model.family, model.sku)]
    match = _SKY.fullmatch(text)
    if match and match[1].upper() in FAMILIES:
        hint = f"write {{type: {match[1].upper()}, memory: {match[2]}GiB}}"
    else:
        families = ", ".join(sorted(FAMILIES))
        hint = did_you_mean(text, [*FAMILIES, *GPUS]) or f"known are {families}"
    raise SpecError(f"unknown GPU {text!r}", hint=hint)


def _there_are(models: Iterable[GpuModel]) -> str:
    return f"there are {', '.join(model.sku for model in models)}"
