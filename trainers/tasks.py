"""Tasks: functions that can be run somewhere else, and what they need there.

gpu = TaskEnvironment("gpu", resources=Resources(cpu=4, memory="24Gi", gpu="L4:1"))

@gpu.task(retries=3)
def train(base: Model, data: Dataset, lr: float = 2e-4, rank: int = 16) -> Adapter: ...
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast, get_type_hints, overload

from registry.artifacts import Artifact
from registry.conditions import Conditions
from registry.errors import InvalidInput, KindMismatch
from registry.resources import Resources
from registry.runs import RunRequest
from registry.suggesting import did_you_mean
from registry.values import Role
from trainers.offered import check_offered
from trainers.parameters import Parameter, parameters_of, result_classes, to_plain
from trainers.secrets import check_secrets, check_variables
from trainers.stepping import current_stepper

P = ParamSpec("P")
R = TypeVar("R")

#: Parameters that a run fills in where a task has them: its checkpoints, a folder for its result, and a
#: listener for its log.
PROVIDED = frozenset({"checkpoints", "output", "on_log"})
#: Options that only a process of its own can keep.
_NOT_INLINE = ("retries", "backoff", "queue_timeout", "deadline", "secrets", "env", "publish", "cache")


class Task(Generic[P, R]):
    """A function with what it needs. Called directly it is just that function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str = "",
        resources: Resources | None = None,
        pool: str = "default",
        retries: int = 0,
        backoff: float | None = None,
        timeout: float | None = None,
        queue_timeout: float | None = None,
        deadline: float | None = None,
        secrets: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        publish: str | None = None,
        roles: Mapping[str, Role] | None = None,
        cache: str | None = None,
        inline: bool = False,
        key: str | None = None,
    ) -> None:
        update_wrapper(self, function)
        self.function = function
        self.name = name or function.__name__
        self.resources = resources or Resources()
        self.pool = pool
        self.retries = retries
        self.backoff = backoff
        self.timeout = timeout
        self.queue_timeout = queue_timeout
        self.deadline = deadline
        self.secrets = check_secrets(secrets)
        self.env = check_variables(env or {})
        self.publish = publish
        self.cache = _check_cache(cache)
        self.inline = inline
        self.key = key
        self._roles = dict(roles or {})
        self._check_inline()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        stepper = current_stepper()
        if stepper is None:
            return self.function(*args, **kwargs)
        # What is awaited gives what the function would: the step is a run of its own, maybe elsewhere.
        return cast("R", stepper.step(self, self._named(*args, **kwargs)))

    def override(self, **options: Any) -> Self:
        """The same task with other options, such as ``resources``, ``retries`` or ``key``, for one call.

        Raises:
            InvalidInput: there is no such option.
        """
        known = inspect.signature(Task.__init__).parameters.keys() - {"self", "function", "name", "roles"}
        unknown = sorted(options.keys() - known)
        if unknown:
            raise InvalidInput(
                f"'{unknown[0]}' of '{self.name}' cannot be overridden.",
                remedy=f"Options are {', '.join(sorted(known))}.",
            )
        if "cache" in options:
            _check_cache(options["cache"])
        changed = copy.copy(self)
        vars(changed).update(options)
        changed._check_inline(own_resources=options.get("resources") is not None)
        return changed

    def _check_inline(self, *, own_resources: bool = False) -> None:
        """Refuse what a driver does not do for a step in its own process."""
        if not self.inline:
            return
        given = [name for name in _NOT_INLINE if getattr(self, name)]
        given += ["resources of its own"] if own_resources else []
        if self.timeout is not None and not inspect.iscoroutinefunction(self.function):
            given.append("timeout")  # nothing could end a plain call
        if given:
            raise InvalidInput(
                f"'{self.name}' is done by its driver (inline), which has no {' and no '.join(given)}.",
                remedy="Leave that out, or leave inline out.",
            )

    @cached_property
    def _signature(self) -> inspect.Signature:
        """The function's, as callers see it."""
        signature = inspect.signature(self.function)
        return signature.replace(parameters=[p for n, p in signature.parameters.items() if n not in PROVIDED])

    def _named(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """What a call gives, by the names of parameters."""
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            takes = ", ".join(p.describe().removeprefix("--") for p in self.parameters.values())
            raise InvalidInput(
                f"'{self.name}' cannot be called so: {error}.", remedy=f"It takes {takes}."
            ) from error

    def with_defaults(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """What a call gives, by the names of parameters, with the defaults of those that it leaves out."""
        defaults = {
            name: parameter.default
            for name, parameter in inspect.signature(self.function).parameters.items()
            if name not in PROVIDED and parameter.default is not inspect.Parameter.empty
        }
        return {**defaults, **self._named(*args, **kwargs)}

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """What a caller may give, by name."""
        return parameters_of(self.function, roles=self._roles, provided=PROVIDED)

    @cached_property
    def provided(self) -> frozenset[str]:
        """Those of its parameters that a run fills in."""
        return PROVIDED & inspect.signature(self.function).parameters.keys()

    @property
    def subjects(self) -> frozenset[str]:
        """Parameters that are judged."""
        return frozenset(p.name for p in self.parameters.values() if p.role is Role.SUBJECT)

    @property
    def optional_bases(self) -> frozenset[str]:
        """Parameters for a base model that need not be given."""
        return frozenset(p.name for p in self.parameters.values() if p.role is Role.BASE and not p.required)

    @property
    def results(self) -> tuple[type[Artifact], ...]:
        """The artifacts that it says it returns."""
        return result_classes(self.function)

    @property
    def conditions(self) -> Conditions:
        """How long it may take, when it is tried again, and the secrets that it is given."""
        return Conditions(
            timeout=self.timeout,
            queue_timeout=self.queue_timeout,
            deadline=self.deadline,
            backoff=self.backoff,
            secrets=tuple(self.secrets),
            env=self.env,
        )

    @cached_property
    def annotation(self) -> Any:
        """What its function says it returns."""
        return get_type_hints(self.function).get("return", Any)

    def request(self, arguments: Mapping[str, Any]) -> RunRequest:
        """What to ask the registry for, to run this with ``arguments`` (references for artifacts).

        Raises:
            InvalidInput: an argument is missing, not known, or not of its type.
        """
        self._check_names(arguments)
        plain, inputs = {}, {}
        for name, given in arguments.items():
            parameter = self.parameters[name]
            if parameter.artifacts:
                inputs[name] = _reference(name, given)
            else:
                plain[name] = to_plain(parameter.read(given), parameter.annotation)
        return RunRequest(
            task=self.name,
            arguments=plain,
            inputs=inputs,
            roles={name: self.parameters[name].role for name in inputs},
            resources=self.resources,
            pool=self.pool,
            publish=self.publish,
            retries=self.retries,
            conditions=self.conditions,
        )

    def _check_names(self, arguments: Mapping[str, Any]) -> None:
        unknown = [name for name in arguments if name not in self.parameters]
        missing = [p.name for p in self.parameters.values() if p.required and p.name not in arguments]
        options = [_option(name) for name in self.parameters]
        takes = f"It takes {', '.join(options)}; --help tells more." if options else "It takes none."
        if unknown:
            meant = did_you_mean(_option(unknown[0]), options)
            raise InvalidInput(f"'{self.name}' has no parameter '{unknown[0]}'.", remedy=meant or takes)
        if missing:
            needed = " and ".join(f"'{_option(name)}'" for name in missing)
            raise InvalidInput(f"'{self.name}' needs {needed}.", remedy=takes)

    def check_kinds(self, kinds: Mapping[str, str]) -> None:
        """Raise `KindMismatch` if an input (parameter -> kind) is not of a kind that its parameter takes."""
        for name, kind in kinds.items():
            wanted = self.parameters[name].kinds
            if wanted and kind not in wanted:
                raise KindMismatch(
                    f"'{name}' of '{self.name}' takes {' or '.join(sorted(wanted))}, and was given {kind}.",
                    remedy="Name another artifact; 'podium list' shows their kinds.",
                )


def _option(name: str) -> str:
    """A parameter as it is given on a command line."""
    return f"--{name.replace('_', '-')}"


def _check_cache(cache: str | None) -> str | None:
    if cache not in (None, "auto"):
        raise InvalidInput(f"'{cache}' is no way to cache.", remedy='Give cache="auto", or leave it out.')
    return cache


def _reference(name: str, given: Any) -> str:
    if isinstance(given, Artifact):
        given = given.value
    if not isinstance(given, str) or not given:
        raise InvalidInput(
            f"'{name}' takes an artifact.",
            remedy="Give a reference such as smollm2:v1; push the files first.",
        )
    return given


@dataclass(frozen=True)
class TaskEnvironment:
    """What tasks need to run: resources, and the pool of workers that has them."""

    name: str
    resources: Resources = field(default_factory=Resources)
    pool: str = "default"
    secrets: Sequence[str] = ()  # what its tasks are given in their environment: see `trainers.secrets`
    env: Mapping[str, str] = field(default_factory=dict)  # ... and what is no secret, by name
    depends_on: Sequence[str] = ()  # what the environment is made of: refused, see `trainers.offered`

    def __post_init__(self) -> None:
        check_offered(depends_on=self.depends_on)
        check_secrets(self.secrets)
        check_variables(self.env)

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str = "",
        resources: Resources | None = None,
        retries: int = 0,
        backoff: float | None = None,
        timeout: float | None = None,
        queue_timeout: float | None = None,
        deadline: float | None = None,
        publish: str | None = None,
        roles: Mapping[str, Role] | None = None,
        cache: str | None = None,
        inline: bool = False,
        interruptible: bool = False,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(
        self,
        function: Any = None,
        /,
        *,
        name: str = "",
        resources: Resources | None = None,
        retries: int = 0,
        backoff: float | None = None,
        timeout: float | None = None,
        queue_timeout: float | None = None,
        deadline: float | None = None,
        publish: str | None = None,
        roles: Mapping[str, Role] | None = None,
        cache: str | None = None,
        inline: bool = False,
        interruptible: bool = False,
    ) -> Any:
        """Make a function a task of this environment.

        ``retries`` is how many attempts more there are after one that failed; attempts that a worker lost are
        not counted. The first waits ``backoff`` seconds, each later one twice as long. ``timeout`` is how
        many seconds one attempt may run, ``queue_timeout`` how many it may wait for a worker, and
        ``deadline`` how many may pass from its request to its end.

        ``publish`` names the artifact of which each result becomes a version. ``roles`` says
        what an input is to the result where its class does not tell.

        ``cache="auto"`` lets a step be reused wherever the same code was given the same. ``inline`` has its
        driver do it in its own process: for what takes milliseconds and returns plain values. Of the options
        such a step has the ``timeout`` alone, where its function is ``async``.

        ``interruptible`` is refused (`NotOffered`): any worker may be stopped, and where that matters a pool
        says which machines a task goes to.
        """
        check_offered(interruptible=interruptible)

        def decorate(function: Callable[P, R]) -> Task[P, R]:
            made = Task(
                function,
                name=name,
                resources=resources or self.resources,
                pool=self.pool,
                retries=retries,
                backoff=backoff,
                timeout=timeout,
                queue_timeout=queue_timeout,
                deadline=deadline,
                secrets=self.secrets,
                env=self.env,
                publish=publish,
                roles=roles,
                cache=cache,
                inline=inline,
            )
            made._check_inline(own_resources=resources is not None)
            return made

        return decorate if function is None else decorate(function)
