"""Every public name explains itself: a docstring, each argument in it, and type hints."""

import inspect
import re

import pytest

import graphformer

NAMES = [name for name in graphformer.__all__ if not name.startswith("__")]
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def own(value):
    """Says whether a thing was written in this package, and not inherited from another."""
    return (getattr(value, "__module__", None) or "").split(".")[0] == "graphformer"


def callables():
    """Each public function, class and method, and each property's getter, by its dotted name."""
    for name in NAMES:
        value = getattr(graphformer, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            yield name, value
            for attribute in dir(value):
                if attribute.startswith("_"):
                    continue
                member = inspect.getattr_static(value, attribute)
                member = (
                    getattr(member, "__func__", None) or getattr(member, "fget", None) or member
                )
                member = getattr(member, "func", member)  # a cached property
                if inspect.isfunction(member) and own(member):
                    yield f"{name}.{attribute}", member


CALLABLES = dict(callables())
each_callable = pytest.mark.parametrize("name", CALLABLES)


def signature_of(value):
    """The function whose arguments a caller gives, or None where the class has none of its own."""
    if not inspect.isclass(value):
        return value
    constructor = value.__dict__.get("__init__")
    return constructor if own(constructor) else None


def arguments(function):
    parameters = inspect.signature(function).parameters.values()
    return [each for each in parameters if each.name not in ("self", "cls", "_")]


def docstring_of(name, value):
    """A docstring; a class's own with its constructor's; an overridden method may inherit it."""
    if not inspect.isclass(value):
        owner, _, method = name.rpartition(".")
        base = getattr(graphformer, owner, None)
        return value.__doc__ or (inspect.getdoc(getattr(base, method)) if base else None) or ""
    parts = [value.__doc__, value.__dict__.get("__init__", object).__doc__ or ""]
    return "\n".join(part for part in parts if part)


def test_all_is_sorted_and_each_name_is_there():
    assert graphformer.__all__ == sorted(set(graphformer.__all__))
    assert not [name for name in graphformer.__all__ if not hasattr(graphformer, name)]
    assert NAMES


@each_callable
def test_has_a_docstring(name):
    # A dataclass or named tuple without one gets its signature for a docstring.
    text = docstring_of(name, CALLABLES[name]).strip()
    assert text and not text.startswith(f"{name}(")


@each_callable
def test_arguments_and_result_are_hinted(name):
    function = signature_of(CALLABLES[name])
    if function is None:
        pytest.skip("no constructor of its own")
    bare = [each.name for each in arguments(function) if each.annotation is each.empty]
    assert not bare, f"without a type hint: {bare}"
    if not inspect.isclass(CALLABLES[name]):
        assert inspect.signature(function).return_annotation is not inspect.Signature.empty


@each_callable
def test_the_docstring_names_each_argument(name):
    value = CALLABLES[name]
    function = signature_of(value)
    if function is None:
        pytest.skip("no constructor of its own")
    text = docstring_of(name, value)
    # "as in :func:`make_model`" says where they are explained.
    for reference in re.findall(r":(?:func|class|meth):`~?(?:graphformer\.)?([\w.]+)`", text):
        text += docstring_of(reference, CALLABLES[reference]) if reference in CALLABLES else ""
    names = [each.name for each in arguments(function) if each.kind not in VARIADIC]
    unsaid = [each for each in names if not re.search(rf"\b{re.escape(each)}\b", text)]
    assert not unsaid, f"not in the docstring: {unsaid}"
