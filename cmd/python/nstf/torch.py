"""Packages as torch modules of transformers': nstf.torch.load, and the quantizer by which
from_pretrained reads directories of `nstf export --coded`. Importing this module registers it.

>>> import nstf.torch
>>> model = nstf.torch.load("model.nstf", dtype=torch.float32)
>>> model.generate(...)
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Iterable
from typing import Any, cast

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import conversion_mapping, core_model_loading
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from ._coded import Coded, Matrix, Weight, recomputed
from ._program import Path, run

__all__ = ["Adapter", "Coded", "Config", "Matrix", "Quantizer", "adapt", "coded", "export", "load", "save", "scales"]


class Target:
    """A parameter of a module of transformers', made of tensors of a checkpoint."""

    def __init__(self, converter: Any, name: str, shape: torch.Size) -> None:
        self.converter, self.name, self.shape = converter, name, shape
        self.sources = list[tuple[str, Weight, int]]()

    def get_parameter(self, _: str) -> Tensor:
        """What converters ask a model for, to see its shape."""
        return blank(self.shape)

    def modules(self) -> list[nn.Module]:
        """What it is made of, each once though all experts come of one stack: autograd adds the gradients of a
        parameter that it is given twice."""
        return list(dict.fromkeys(c for _, w, _ in self.sources for c in w.of))

    def make(self, _: Tensor | None = None) -> Tensor:
        made: dict[int, list[Tensor]] = {}
        collected: dict[str, Any] = {}
        for pattern, weight, i in self.sources:
            if id(weight) not in made:
                made[id(weight)] = weight.tensors()
            collected.setdefault(pattern, []).append(made[id(weight)][i])
        if self.converter is None:
            return cast(Tensor, collected[""][0])
        for op in self.converter.operations:
            convert = type(op).convert
            convert = getattr(convert, "__wrapped__", convert)  # without torch.no_grad
            patterns = {"source_patterns": self.converter.source_patterns, "target_patterns": self.converter.target_patterns}
            collected = convert(op, collected, **patterns, model=self, full_layer_name=self.name)
        (out,) = collected.values()
        return cast(Tensor, out[0] if isinstance(out, list) else out)


class Swapped(nn.Module):
    """What a module of transformers' becomes whose parameters are coded: they are decoded when it asks for them."""

    _nstf: dict[str, Target]
    _now: dict[str, Tensor] | None
    _dtype: torch.dtype

    def __getattr__(self, name: str) -> Any:
        targets = self.__dict__.get("_nstf")
        if targets is None or name not in targets:
            return super().__getattr__(name)
        if not self.__dict__["_ready"]:
            return blank(targets[name].shape)
        now = self.__dict__.get("_now")
        if now is not None and name in now:
            return now[name]
        t = targets[name]
        made = recomputed(t.make, None, t.modules()).to(self._dtype)
        if now is not None:
            now[name] = made
        return made

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the module does, with what is decoded kept until it returns."""
        t = self._nstf.get("weight")
        if t is not None and t.converter is None and t.sources[0][1].plain:
            weight = t.sources[0][1]
            if type(self).forward_of is nn.Linear.forward:  # type: ignore[attr-defined]
                y = recomputed(lambda x: weight.linear(cast(Tensor, x)), args[0] if args else kwargs["input"], t.modules())
                return y if self.bias is None else y + self.bias
            if isinstance(self, nn.Embedding) and len(weight.of) == 1 and not weight.entry.get("rows"):
                rows, places = torch.unique(args[0] if args else kwargs["input"], return_inverse=True)
                table = recomputed(lambda _: weight.of[0].weight(rows), None, t.modules()).to(self._dtype)
                self.__dict__["_now"] = {"weight": table}
                try:
                    return super().forward(places)
                finally:
                    self.__dict__["_now"] = None
        self.__dict__["_now"] = {}
        try:
            return super().forward(*args, **kwargs)
        finally:
            self.__dict__["_now"] = None


def blank(shape: torch.Size) -> Tensor:
    """What stands for a parameter while transformers fills what a checkpoint lacks: it leaves this one alone."""
    t = torch.zeros(()).expand(shape)
    t._is_hf_initialized = True  # type: ignore[attr-defined]
    return t


KINDS: dict[type[nn.Module], type[nn.Module]] = {}


def swapped(kind: type[nn.Module]) -> type[nn.Module]:
    if kind not in KINDS:
        KINDS[kind] = type("Nstf" + kind.__name__, (Swapped, kind), {"forward_of": kind.forward, "__module__": __name__})
    return KINDS[kind]


def attach(module: nn.Module, name: str, target: Target, dtype: torch.dtype) -> None:
    """Takes a parameter from a module, and has it made of codes."""
    module._parameters.pop(name)
    if not isinstance(module, Swapped):
        module.__class__ = swapped(type(module))
        module.__dict__.update(_nstf={}, _now=None, _dtype=dtype, _ready=False)
        if isinstance(module, nn.Embedding):
            module.padding_idx = None  # of rows that are looked up among a few
    module.__dict__["_nstf"][name] = target


class Config(QuantizationConfigMixin):
    """quantization_config of a directory that `nstf export --coded` writes: docs/python.md."""

    def __init__(self, version: int = 1, tensors: Iterable[dict[str, Any]] = (), weights: Iterable[dict[str, Any]] = (), **_: Any) -> None:
        if version != 1:
            raise ValueError(f"version {version} of quantization_config; this module reads 1")
        self.quant_method, self.version = cast(Any, "nstf"), version
        self.tensors, self.weights = list(tensors), list(weights)


class Quantizer(HfQuantizer):
    """Puts NSTF's modules in the place of parameters before transformers loads their bytes."""

    def validate_environment(self, *_: Any, **__: Any) -> None:
        if not self.pre_quantized:
            raise ValueError("nstf quantizes packages: see nstf quantize and nstf export --coded")

    def _process_model_before_weight_loading(self, model: Any, dtype: torch.dtype | None = None, **_: Any) -> None:
        config = cast(Config, self.quantization_config)
        coded = [Coded(e) for e in config.tensors]
        model.add_module("nstf", nn.ModuleList(coded))
        place(model, [Weight(e, coded) for e in config.weights], dtype or torch.get_default_dtype())

    def _process_model_after_weight_loading(self, model: Any, **_: Any) -> Any:
        for c in model.nstf:
            c.open()
        for module in model.modules():
            if isinstance(module, Swapped):
                module.__dict__["_ready"] = True
        return model

    def is_serializable(self) -> bool:
        return False

    @property
    def is_trainable(self) -> bool:
        return True


def place(model: Any, weights: list[Weight], dtype: torch.dtype) -> None:
    """Finds, as the loader of transformers would, which parameters the checkpoint's tensors make, and attaches them."""
    mapping = conversion_mapping.get_model_conversion_mapping(model)
    renamings = [m for m in mapping if isinstance(m, core_model_loading.WeightRenaming)]
    converters = [m for m in mapping if isinstance(m, core_model_loading.WeightConverter)]
    state = model.state_dict()
    sources = [(name, w, i) for w in weights for i, name in enumerate(w.names)]
    targets: dict[str, Target] = {}
    for name, weight, i in sorted(sources, key=lambda s: core_model_loading.dot_natural_key(s[0])):
        renamed, pattern = core_model_loading.rename_source_key(name, renamings, converters, model.base_model_prefix, state)
        if renamed not in state and name in state:
            renamed, pattern = name, None
        if renamed not in state:
            continue  # of a head that this class does not have
        converter = next((c for c in converters if pattern in c.source_patterns), None) if pattern else None
        targets.setdefault(renamed, Target(converter, renamed, state[renamed].shape)).sources.append((pattern or "", weight, i))
    for name, target in targets.items():
        for tied in [k for k, v in model.all_tied_weights_keys.items() if v == name] + [name]:
            module, _, attribute = tied.rpartition(".")
            owner = model.get_submodule(module)
            if attribute in owner._parameters:
                attach(owner, attribute, target, dtype)
            model.all_tied_weights_keys.pop(tied, None)
    model.__dict__["get_expanded_tied_weights_keys"] = functools.partial(untied, model)


def untied(model: Any, all_submodels: bool = False) -> dict[str, str]:
    """What transformers ties: of parameters that are coded, nothing, for they share their codes."""

    def parameter(name: str) -> bool:
        module, _, attribute = name.rpartition(".")
        return attribute in model.get_submodule(module)._parameters

    keys = type(model).get_expanded_tied_weights_keys(model, all_submodels)
    return {target: source for target, source in keys.items() if parameter(target) and parameter(source)}


register_quantization_config("nstf")(Config)
register_quantizer("nstf")(Quantizer)


def generative(folder: str) -> Any:
    """The class that generates text with a directory's configuration."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        c = json.load(f)
    kind = c.get("model_type")
    if kind not in transformers.CONFIG_MAPPING:
        raise NotImplementedError(f"transformers {transformers.__version__} has no class for the architecture {kind}")
    config = type(transformers.CONFIG_MAPPING[kind]())
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText):
        if config in auto._model_mapping:
            return auto
    raise NotImplementedError(f"transformers {transformers.__version__} generates no text with the architecture {kind}")


def export(package: Path, folder: Path) -> None:
    """Writes the directory that from_pretrained reads, where nstf.torch is imported: coded tensors stay as they are."""
    run(["export", package, "--coded", "-o", os.path.join(folder, "")])


def load(path: Path, auto: Any = None, **options: Any) -> Any:
    """A package as a model of transformers', whose linears hold codes and factors as they are stored.

    ``auto`` is the class whose from_pretrained reads it, one that generates text where it is left out; ``options``
    are that function's (``dtype``, ``device_map`` …). Raises nstf.Error for what the program cannot say in
    transformers' terms, and NotImplementedError for an architecture without a class there, or a scheme that torch
    does not decode.
    """
    with tempfile.TemporaryDirectory(prefix="nstf-") as folder:
        inside = os.path.join(folder, "model", "")
        export(path, inside)
        model = (auto or generative(inside)).from_pretrained(inside, **options)
    model.__dict__["_nstf_path"] = os.path.abspath(path) if os.path.exists(path) else path  # else a name of a hub
    return model


def coded(model: nn.Module) -> dict[str, Coded]:
    """The coded tensors of a model by their names in the package."""
    return {m.tensor: m for m in model.modules() if isinstance(m, Coded)}


def scales(model: nn.Module) -> list[nn.Parameter]:
    """The scales, and factors that are stored as floats, of all coded tensors: what can be trained while codes stay."""
    return [p for c in coded(model).values() for p in c.parameters()]


class Adapter(nn.Module):
    """A low-rank adapter (LoRA, arXiv 2106.09685) beside a linear: y = base(x) + x A^T B^T, with B zero at first."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        device = base.weight.device
        self.a = nn.Parameter(torch.randn(rank, base.in_features, device=device) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank, device=device))

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.base(x) + functional.linear(functional.linear(x, self.a.to(x.dtype)), self.b.to(x.dtype)))


def adapt(model: nn.Module, rank: int = 8, names: Iterable[str] = ("q_proj", "v_proj")) -> list[nn.Parameter]:
    """Puts adapters beside the linears of those last names, and returns their parameters: all that asks for gradients."""
    model.requires_grad_(False)
    out: list[nn.Parameter] = []
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in names and isinstance(child, nn.Linear):
                adapter = Adapter(child, rank)
                setattr(module, name, adapter)
                out += [adapter.a, adapter.b]
    if not out:
        raise ValueError(f"the model has no linears named {', '.join(names)}")
    return out


def save(model: Any, output: Path, package: Path | None = None) -> None:
    """Writes the package that a model was loaded from with the model's scales, factors, norms and biases as they are
    now, rounded to the types that they have there. Codes stay, and nothing else is written: an adapter is not.

    ``package`` is where that package lies now. Raises ValueError where a tensor has another shape than there.
    """
    source = package or model.__dict__.get("_nstf_path")
    if source is None:
        raise ValueError("which package the model was loaded from is not known: say package=")
    with tempfile.TemporaryDirectory(prefix="nstf-") as folder:
        inside = os.path.join(folder, "model", "")
        export(source, inside)
        changed: dict[str, Tensor] = {}
        for i, c in enumerate(coded(model).values()):
            for name, m in c.named_children():
                for part, raw in cast(Matrix, m).bytes().items():
                    changed[f"nstf.{i}.{name}.{part}"] = raw.cpu().contiguous()
        changed = {**changed, **plain(model, inside)}
        file = os.path.join(folder, "changed.safetensors")
        save_file(different(changed, inside), file)
        run(["dev", "replace", source, file, "-o", output])


def stored(folder: str) -> dict[str, Any]:
    """The tensors of a directory, to be read by get_tensor of what each is in."""
    out: dict[str, Any] = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            f = safe_open(os.path.join(folder, name), "pt")
            out |= {key: f for key in f.keys()}
    return out


def different(tensors: dict[str, Tensor], folder: str) -> dict[str, Tensor]:
    was = stored(folder)
    return {name: t for name, t in tensors.items() if not torch.equal(was[name].get_tensor(name).view(t.shape), t)}


def plain(model: Any, folder: str) -> dict[str, Tensor]:
    """The parameters of a model that are not coded, under the names and in the types of a directory."""
    mapping = conversion_mapping.get_model_conversion_mapping(model)
    renamings = [m for m in mapping if isinstance(m, core_model_loading.WeightRenaming)]
    converters = [m for m in mapping if isinstance(m, core_model_loading.WeightConverter)]
    state, out = model.state_dict(), dict[str, Tensor]()
    for name, file in stored(folder).items():
        if name.startswith("nstf."):
            continue
        renamed, pattern = core_model_loading.rename_source_key(name, renamings, converters, model.base_model_prefix, state)
        renamed, pattern = (name, None) if renamed not in state and name in state else (renamed, pattern)
        if pattern is None and renamed in state:
            was = file.get_tensor(name)
            now = state[renamed].detach().cpu()
            if now.shape != was.shape:
                raise ValueError(f"{renamed} has shape {list(now.shape)}, the package's {list(was.shape)}")
            out[name] = now.to(was.dtype).contiguous()
    return out
