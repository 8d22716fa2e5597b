"""The arguments that a program gives to the middlewares and to the lead agent, checked when they are given and not at the first call.

Errors are ConfigErrors, and ValueError or TypeError as LangChain's own are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, tool

from holdfast.config.sections import Config
from holdfast.context.recall import RecallPolicy
from holdfast.errors import WrongType, WrongValue
from holdfast.models.factory import create_chat_model
from holdfast.tokens.accounts import Accounts
from holdfast.validation import check_kind, check_number, kind_of

ROLES = ("human", "system")


def check_summarization(
    *,
    archive: object,
    on_leave: object,
    accounts: object,
    recall: object,
    window: object,
    trim_tokens_to_summarize: object,
    timeout: object,
    summary_role: object,
    counted: object,
) -> None:
    """Those of `SummarizationMiddleware` but `trigger` and `keep`."""
    if archive is not None and not callable(getattr(archive, "add", None)):
        raise WrongType(f"`archive` takes an archive, and not {kind_of(archive)}.", hint="`holdfast.FileArchive(FOLDER)` is one.")
    if not isinstance(on_leave, Sequence) or isinstance(on_leave, str) or not all(callable(one) for one in on_leave):
        raise WrongType(
            f"`on_leave` takes a list of functions, and not {kind_of(on_leave)}.",
            hint="`on_leave=[function]`: each is given the thread and the messages that leave.",
        )
    check_kind("accounts", accounts, (Accounts, type(None)), "the accounts that calls are charged to")
    check_kind("recall", recall, (bool, RecallPolicy, Mapping, type(None)), "true, false or its settings", hint="`recall={'share': 0.05}`.")
    if window is not None:
        check_number("window", window, least=1)
    if trim_tokens_to_summarize is not None:
        check_number("trim_tokens_to_summarize", trim_tokens_to_summarize, least=1)
    if timeout is not None:
        check_number("timeout", timeout, above=0, whole=False)
    if summary_role not in ROLES:
        raise WrongValue(f"`summary_role` is {summary_role!r}.", hint=f"Use {' or '.join(ROLES)}.")
    check_number("counted", counted, least=1)


def as_tools(tools: object) -> list[BaseTool]:
    """Tools as an agent has them. A function becomes one, as in LangChain's `create_agent`: its docstring says what it is for."""
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        raise WrongType(f"`tools` takes a list of tools and functions, and not {kind_of(tools)}.", hint="`tools=[function]`.")
    return [_as_tool(one) for one in tools]


def _as_tool(one: object) -> BaseTool:
    if isinstance(one, BaseTool):
        return one
    if not callable(one):
        raise WrongType(f"`tools` holds {kind_of(one)}, which is no tool.", hint="Give LangChain tools, or functions with a docstring.")
    try:
        made = tool(one)
    except ValueError as error:  # it has no docstring, or parameters without a type
        raise WrongValue(f"{getattr(one, '__name__', one)!r} in `tools` cannot be a tool: {error}") from error
    return made


def as_chat_model(model: BaseChatModel | str | None, config: Config) -> BaseChatModel | None:
    """A chat model that was made already, or the one of this name in the configuration. ModelNotConfigured says which there are."""
    if isinstance(model, str):
        return create_chat_model(model, config=config, retries=False)
    hint = "Give a model that was made already, or the name of one in the configuration."
    check_kind("model", model, (BaseChatModel, type(None)), "a chat model of LangChain's, or a name", hint=hint)
    return model
